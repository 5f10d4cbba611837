"""What a fleet keeps in Postgres: items, checkpoints, answers, documents, events. Needs the extra `fleet`."""
