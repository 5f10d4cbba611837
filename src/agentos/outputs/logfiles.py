"""Listeners that write a run's files: a log per item, summary.json, and a job log in the format of GNU parallel."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.core.text.line_assembler import one_line
from agentos.outputs.summary import ending_lines, summary_text

OpenFile = Callable[[Path], int]
Warn = Callable[[OSError], None]
HEADER = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
SIGKILL = 9


class WarnOnce:
    """Warns about the first record that cannot be written, and ignores later errors.

    Records only describe the work, so a full disk must neither stop it nor flood the screen.
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


@dataclass(slots=True)
class _JobAttempt:
    began: float = 0.0
    received: int = 0
    ended: events.ProgramEnded | None = None


class JobLog:
    """A listener; `commands` maps each item to its command line."""

    def __init__(self, descriptor: int, commands: Mapping[str, str], redact: Callable[[str], str]) -> None:
        self._descriptor = descriptor
        self._commands = commands
        self._redact = redact
        self._sequence = {item: number for number, item in enumerate(commands, 1)}
        self._attempts: dict[str, _JobAttempt] = {}
        if os.fstat(descriptor).st_size == 0:
            self._write(HEADER)

    def on_event(self, event: events.Event, at: float) -> None:
        match event:
            case events.WorkerStarted():
                self._attempts[event.item] = _JobAttempt(at)
            case events.LineWritten() if event.item in self._attempts:
                self._attempts[event.item].received += len(event.text.encode("utf-8", "replace")) + 1
            case events.ProgramEnded() if event.item in self._attempts:
                self._attempts[event.item].ended = event
            case events.WorkerReported() if self._ran_nothing(event.item):
                del self._attempts[event.item]
            case events.WorkerExited() if event.item in self._attempts:
                self._write_attempt(event.item, self._attempts.pop(event.item), at)
            case _:
                pass

    def close(self) -> None:
        os.close(self._descriptor)

    def _ran_nothing(self, item: str) -> bool:
        """Whether the worker ran no program, because the item was done already or another run had it."""
        return item in self._attempts and self._attempts[item].ended is None

    def _write_attempt(self, item: str, attempt: _JobAttempt, at: float) -> None:
        status = attempt.ended.status if attempt.ended else -SIGKILL
        seconds = attempt.ended.seconds if attempt.ended else at - attempt.began
        command = self._redact(self._commands[item]).replace("\t", " ").replace("\n", " ")
        numbers = (
            f"{attempt.began:.3f}",
            f"{seconds:10.3f}",
            0,
            attempt.received,
            max(status, 0),
            max(-status, 0),
        )
        self._write((self._sequence[item], ":", *numbers, command))

    def _write(self, fields: tuple[object, ...]) -> None:
        line = "\t".join(str(field) for field in fields) + "\n"
        os.write(self._descriptor, line.encode("utf-8", "replace"))
