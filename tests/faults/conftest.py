"""Makes the scenarios' `harness` fixture available to the fault tests."""

from tests.scenarios.conftest import harness

__all__ = ["harness"]
