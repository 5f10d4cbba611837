"""Forecasting a run by simulating it on a virtual clock."""
