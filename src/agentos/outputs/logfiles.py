"""A log file per item, with every line of its output."""

import os
from collections.abc import Callable
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.text.line_assembler import one_line
from agentos.outputs.summary import ending_lines

OpenFile = Callable[[Path], int]


class LogFiles:
    """A listener; a full disk costs lines of the log, never the work."""

    def __init__(self, folder: Path, open_file: OpenFile, warn: Callable[[OSError], None]) -> None:
        self._folder = folder
        self._open_file = open_file
        self._warn = warn
        self._files: dict[str, int] = {}
        self._torn: set[str] = set()

    def on_event(self, event: events.Event, at: float) -> None:
        match event:
            case events.LineWritten():
                self._append(event.item, [event.text])
            case events.ItemEnded():
                if lines := ending_lines(event):
                    self._append(event.item, lines)
                if (descriptor := self._files.pop(event.item, None)) is not None:
                    os.close(descriptor)
            case _:
                pass

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def _append(self, item: str, lines: list[str]) -> None:
        whole = "".join(f"{one_line(line)}\n" for line in lines)
        content = (f"\n{whole}" if item in self._torn else whole).encode("utf-8", "replace")
        try:
            if item not in self._files:
                self._files[item] = self._open_file(self._folder / f"{item}.log")
            while content:
                content = content[os.write(self._files[item], content) :]
            self._torn.discard(item)
        except OSError as error:
            self._torn.add(item)
            self._warn(error)
