"""Settings: flags, environment and files."""
