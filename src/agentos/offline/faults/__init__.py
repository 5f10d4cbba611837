"""Scripted faults of the offline server."""
