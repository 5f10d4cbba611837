"""A run harness around each test of the page, and a browser around all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.harness import RunHarness

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RunHarness]:
    with RunHarness.open(tmp_path) as opened:
        yield opened


@pytest.fixture(
    scope="module"
)  # its event loop must not outlive the module: other tests have loops of their own
def browser() -> "Iterator[Browser]":
    from .browser import launched

    with launched() as opened:
        yield opened
