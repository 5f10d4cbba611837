"""A small HTTP/1.1 server: on loopback, or with TLS on any address."""
