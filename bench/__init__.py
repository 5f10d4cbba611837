"""Benchmarks, with the tools that a user might choose instead."""
