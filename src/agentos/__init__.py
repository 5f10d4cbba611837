"""agentos turns a backlog into reviewed documents."""

__version__ = "0.1.0"
