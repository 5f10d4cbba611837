"""Writes a job log in the format of GNU parallel: one line per attempt."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentos.core.protocol import events

HEADER = ("Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command")
SIGKILL = 9


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
        """Whether the worker ran no program: the item was done already, or another run had it."""
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
