"""A run without neighbours: its keys are its own."""

import contextlib
from collections.abc import Iterator

from agentos.core.neighbours import Note, RunGone


class Alone:
    @contextlib.contextmanager
    def turn(self) -> Iterator[list[Note]]:
        yield []

    def leave(self, notes: list[Note]) -> bool:
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        return []
