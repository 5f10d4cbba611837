"""Text helpers without I/O: line assembly, redaction of secrets, positions in TOML files."""
