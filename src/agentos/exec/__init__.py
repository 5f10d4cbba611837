"""`agentos exec`: any program, once for every item."""
