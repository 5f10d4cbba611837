"""Many machines: items are handed out by Temporal and kept in Postgres. Needs the extra `fleet`."""
