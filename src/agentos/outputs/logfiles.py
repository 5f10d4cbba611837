"""Listeners that write a run's files: one log per item, and summary.json at the end."""

import os
from collections.abc import Callable
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.core.text.line_assembler import one_line
from agentos.outputs.summary import ending_lines, summary_text

OpenFile = Callable[[Path], int]
Warn = Callable[[OSError], None]


class WarnOnce:
    """Warns about the first record that cannot be written; later errors are ignored.

    Records only describe the work, so a full disk must neither stop it nor fill the screen.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._warned = False

    def __call__(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            self._write(
                f"[COORDINATOR] Cannot write log files ({error.strerror}). The run continues without them."
            )


class LogFiles:
    """A listener that writes each item's output to `<item>.log`; a full disk loses lines, never work."""

    def __init__(self, folder: Path, open_file: OpenFile, warn: Warn) -> None:
        self._folder = folder
        self._open_file = open_file
        self._warn = warn
        self._files: dict[str, int] = {}
        self._torn: set[str] = set()  # logs that may end in an incomplete line

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
        text = "".join(f"{one_line(line)}\n" for line in lines)
        content = (f"\n{text}" if item in self._torn else text).encode("utf-8", "replace")
        try:
            if item not in self._files:
                self._files[item] = self._open_file(self._folder / f"{item}.log")
            while content:
                content = content[os.write(self._files[item], content) :]
            self._torn.discard(item)
        except OSError as error:
            self._torn.add(item)
            self._warn(error)


class SummaryFile:
    """A listener that writes summary.json when the run has ended; `write` replaces the file atomically."""

    def __init__(self, write: Callable[[str], None], redact: Callable[[str], str], warn: Warn) -> None:
        self._write = write
        self._redact = redact
        self._warn = warn
        self._stats = RunStats()

    def on_event(self, event: events.Event, at: float) -> None:
        self._stats.handle(event, at)
        if isinstance(event, events.RunEnded):
            try:
                self._write(self._redact(summary_text(self._stats)))
            except OSError as error:
                self._warn(error)

    def close(self) -> None:
        pass
