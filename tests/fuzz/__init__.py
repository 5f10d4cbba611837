"""Random input for everything that reads foreign data."""
