"""Tests of the gateway, mostly through its HTTP interface."""
