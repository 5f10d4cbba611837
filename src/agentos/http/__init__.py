"""HTTP/1.1 on loopback, for the servers of this package."""
