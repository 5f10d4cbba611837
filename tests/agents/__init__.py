"""Coding agents under `agentos exec --agent` and behind `agentos gateway --agent`."""
