"""The facts of each item, and of all of them together after the end."""

import json
from collections.abc import Callable
from pathlib import Path

from agentos.core import events
from agentos.core.wire import encode

OpenFile = Callable[[Path], int]
MERGED = "workflow-audit.jsonl"


class Audit:
    """A listener: `workflow-audit-42.jsonl` during the run, `workflow-audit.jsonl` after it."""

    def __init__(
        self,
        folder: Path,
        open_file: OpenFile,
        redact: Callable[[str], str],
        warn: Callable[[OSError], None],
    ) -> None:
        self._folder = folder
        self._open_file = open_file
        self._redact = redact
        self._merged = folder / f".{MERGED}"
        self._warn = warn
        self._numbered = True

    def hear(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.RunStarted):
            self._numbered = _are_numbered(event.items)
        item = getattr(event, "item", None)
        if item is None or isinstance(event, events.LineWritten):
            return
        name = f"workflow-audit-{self._short(item)}.jsonl"
        line = json.dumps(
            {"at": round(at, 3), **encode(event)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        try:
            self._append(name, self._redact(line))
        except OSError as error:
            self._warn(error)

    def _short(self, item: str) -> str:
        """The number alone, where items are called `LLD-42`."""
        return item.rpartition("-")[2] if self._numbered else item

    def close(self) -> None:
        """What was gathered on the way gets its name."""
        try:
            with open(self._open_file(self._merged), "w"):
                self._merged.replace(self._folder / MERGED)
        except OSError as error:
            self._warn(error)

    def _append(self, name: str, line: str) -> None:
        for path in (self._folder / name, self._merged):
            with open(self._open_file(path), "w", encoding="utf-8") as file:
                file.write(f"{line}\n")


def _are_numbered(items: tuple[str, ...]) -> bool:
    """Whether all share one prefix, and have a number behind it."""
    parts = [item.rpartition("-") for item in items]
    return len({prefix for prefix, _, _ in parts}) == 1 and all(number.isdigit() for _, _, number in parts)
