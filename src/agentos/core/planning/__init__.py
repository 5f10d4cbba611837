"""What is decided before a run starts: items, plan, gates, roles."""
