"""A fleet beside the local engine, in one run."""
