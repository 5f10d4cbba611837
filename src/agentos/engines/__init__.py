"""Engines: they start workers and carry messages between workers and coordinator."""
