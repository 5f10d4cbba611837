"""What the page costs a run."""
