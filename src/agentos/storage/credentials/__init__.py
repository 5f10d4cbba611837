"""Credentials from environment variables and credentials.toml."""
