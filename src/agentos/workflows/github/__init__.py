"""Issues on GitHub, read and filed over its REST API."""
