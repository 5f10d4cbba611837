"""The page: watch, read, decide and steer in a browser. Needs the extra `agentos-runner[page]`."""
