"""A run harness, opened and closed around each test of an agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RunHarness]:
    with RunHarness.open(tmp_path) as opened:
        yield opened
