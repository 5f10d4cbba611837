"""The key pool: credentials, buckets, leases and the budget."""
