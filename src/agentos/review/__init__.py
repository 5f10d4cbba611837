"""Items that are waiting for a human decision."""
