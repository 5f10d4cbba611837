"""Engines, which start workers and carry messages between workers and coordinator."""
