"""A run harness, opened and closed around each scenario."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import RunHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RunHarness]:
    with RunHarness.open(tmp_path) as opened:
        yield opened
