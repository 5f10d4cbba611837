"""Everything kept on disk."""
