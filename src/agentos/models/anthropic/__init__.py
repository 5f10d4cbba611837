"""Anthropic through its own SDK."""
