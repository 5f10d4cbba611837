"""Runs on many machines: Temporal distributes the items, Postgres stores them. Needs the extra `fleet`."""
