"""Simulation of the core: engine, provider and clock are simulated, and every scenario can be replayed."""
