"""Messages between the parts: events, commands, notes between runs, and their JSON codec."""
