"""The stage, set up and taken down around each test of the gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage.open(tmp_path) as opened:
        yield opened
