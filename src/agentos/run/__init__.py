"""Runs in the parent process: planning, composition and the event loop."""
