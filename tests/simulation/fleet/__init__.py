"""Simulation of fleets: the product's own code on a virtual clock; hosts, network, Temporal and Postgres are imagined."""
