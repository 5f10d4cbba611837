"""What `agentos init` puts into a new project."""
