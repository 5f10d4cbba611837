"""Anthropic, through its SDK."""
