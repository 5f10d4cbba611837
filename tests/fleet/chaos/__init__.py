"""The chaos campaign of a fleet: two workers, one backlog, and faults of every kind at once."""
