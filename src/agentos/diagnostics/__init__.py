"""Diagnostics of the machine, the project and the keys, and administration of the keys."""
