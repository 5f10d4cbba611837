"""Contract tests: one test body per port, run on every adapter."""
