"""One body per port; every adapter passes it."""
