"""The facts of each item, and of all of them together after the end."""

import os
from collections.abc import Callable
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import encode, one_line

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
        # Those of items at work, and the merged one: opening them anew costs more than all the rest.
        self._files: dict[Path, int] = {}

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.RunStarted):
            self._numbered = _are_numbered(event.items)
        item = getattr(event, "item", None)
        if item is None or isinstance(event, events.LineWritten):
            return
        path = self._folder / f"workflow-audit-{self._short(item)}.jsonl"
        record = {"at": at, **encode(event)}
        line = self._redact(one_line(record))
        try:
            for place in (path, self._merged):
                self._append(place, f"{line}\n".encode(errors="backslashreplace"))
        except OSError as error:
            self._warn(error)
        if isinstance(event, events.ItemEnded):
            self._close(path)

    def _short(self, item: str) -> str:
        """The number alone, where items are called `LLD-42`."""
        return item.rpartition("-")[2] if self._numbered else item

    def close(self) -> None:
        """What was gathered on the way gets its name."""
        try:
            self._append(self._merged, b"")
            self._merged.replace(self._folder / MERGED)
        except OSError as error:
            self._warn(error)
        for path in list(self._files):
            self._close(path)

    def _append(self, path: Path, content: bytes) -> None:
        if path not in self._files:
            self._files[path] = self._open_file(path)
        while content:
            content = content[os.write(self._files[path], content) :]

    def _close(self, path: Path) -> None:
        if (descriptor := self._files.pop(path, None)) is not None:
            os.close(descriptor)


def _are_numbered(items: tuple[str, ...]) -> bool:
    """Whether all share one prefix, and have a number behind it."""
    parts = [item.rpartition("-") for item in items]
    return len({prefix for prefix, _, _ in parts}) == 1 and all(number.isdigit() for _, _, number in parts)
