"""A small HTTP/1.1 server for loopback addresses."""
