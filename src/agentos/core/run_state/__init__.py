"""The state of a run, computed from its events: statistics, timeline, record, ETA."""
