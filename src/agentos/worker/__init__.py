"""Code that runs inside a worker process: one item, one graph."""
