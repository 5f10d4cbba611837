"""The whole brain in imagined lives: engine, provider and clock are simulated, and every life can be replayed."""
