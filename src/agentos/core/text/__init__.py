"""Pure text helpers: whole lines, redaction, TOML positions."""
