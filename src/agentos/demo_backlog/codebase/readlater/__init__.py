"""Saves articles to read later."""
