"""Events as JSON lines: the audit files of a run, per item and merged, and the output of `--json`."""

import os
from collections.abc import Callable
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder

MERGED = "workflow-audit.jsonl"
_UNFINISHED = f".{MERGED}"


class Audit:
    """A listener that writes `workflow-audit-42.jsonl` for each item and `workflow-audit.jsonl` at the end.

    The merged file is written under a hidden name during the run and gets its own name on `close`.
    """

    def __init__(
        self,
        folder: Path,
        open_file: Callable[[Path], int],
        encoder: EventEncoder,
        warn: Callable[[OSError], None],
    ) -> None:
        self._folder = folder
        self._open_file = open_file
        self._encoder = encoder
        self._warn = warn
        self._by_number = True
        # The merged file and those of running items stay open: opening a file costs more than writing a line.
        self._files: dict[str, int] = {}

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.RunStarted):
            self._by_number = _share_one_prefix(event.items)
        item = getattr(event, "item", None)
        if item is None or isinstance(event, events.LineWritten):
            return
        name = item.rpartition("-")[2] if self._by_number else item
        file = f"workflow-audit-{name}.jsonl"
        line = f"{self._encoder.line(event, at)}\n".encode(errors="backslashreplace")
        try:
            self._append(file, line)
            self._append(_UNFINISHED, line)
        except OSError as error:
            self._warn(error)
        if isinstance(event, events.ItemEnded):
            self._close_file(file)

    def close(self) -> None:
        try:
            self._append(_UNFINISHED, b"")
            (self._folder / _UNFINISHED).replace(self._folder / MERGED)
        except OSError as error:
            self._warn(error)
        for file in list(self._files):
            self._close_file(file)

    def _append(self, file: str, content: bytes) -> None:
        if file not in self._files:
            self._files[file] = self._open_file(self._folder / file)
        while content:
            content = content[os.write(self._files[file], content) :]

    def _close_file(self, file: str) -> None:
        if (descriptor := self._files.pop(file, None)) is not None:
            os.close(descriptor)


def _share_one_prefix(items: tuple[str, ...]) -> bool:
    """Whether all items are named PREFIX-NUMBER with the same prefix, so that the number alone identifies an item."""
    parts = [item.rpartition("-") for item in items]
    return len({prefix for prefix, _, _ in parts}) == 1 and all(number.isdigit() for _, _, number in parts)


class JsonLines:
    """A listener that passes every event to `write` as one JSON line."""

    def __init__(self, write: Callable[[str], None], encoder: EventEncoder) -> None:
        self._write = write
        self._encoder = encoder

    def on_event(self, event: events.Event, at: float) -> None:
        self._write(self._encoder.line(event, at))

    def close(self) -> None:
        pass
