"""What agentos decides: pure code that is told events and the time."""
