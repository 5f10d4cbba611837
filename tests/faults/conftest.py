"""The harness fixture of the scenarios, for the fault tests."""

from tests.scenarios.conftest import harness

__all__ = ["harness"]
