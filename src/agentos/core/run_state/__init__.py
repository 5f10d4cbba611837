"""What the events of a run add up to."""
