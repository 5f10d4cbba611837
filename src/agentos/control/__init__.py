"""Control socket: how other terminals reach a run."""
