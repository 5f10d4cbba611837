"""Tests of the run package."""
