"""The stage, as the scenarios have it."""

from tests.scenarios.conftest import stage

__all__ = ["stage"]
