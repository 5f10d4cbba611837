"""`agentos exec`: runs any program once per item."""
