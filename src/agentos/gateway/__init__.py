"""The gateway: the vendors' wire formats on loopback, each call with a key leased from the pool."""
