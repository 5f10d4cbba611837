"""Read-only checks of the machine, the project and the keys."""
