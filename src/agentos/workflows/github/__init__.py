"""Reading and filing issues on GitHub."""
