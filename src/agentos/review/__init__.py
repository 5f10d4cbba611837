"""Items that wait for a human decision."""
