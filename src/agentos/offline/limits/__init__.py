"""Rate limits that the offline server enforces."""
