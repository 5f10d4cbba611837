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
        self._warn = warn
        self._names: list[str] = []

    def hear(self, event: events.Event, at: float) -> None:
        item = getattr(event, "item", None)
        if item is None or isinstance(event, events.LineWritten):
            return
        name = f"workflow-audit-{item.rpartition('-')[2]}.jsonl"
        line = json.dumps(
            {"at": round(at, 3), **encode(event)},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        try:
            self._append(name, self._redact(line))
        except OSError as error:
            self._warn(error)

    def close(self) -> None:
        try:
            self._merge()
        except OSError as error:
            self._warn(error)

    def _merge(self) -> None:
        """What every item's file says, by time; a line that a full disk has cut is left out."""
        lines = [
            line for name in self._names for line in (self._folder / name).read_text("utf-8").splitlines()
        ]
        lines = sorted((line for line in lines if line.endswith("}")), key=_time_of)
        with open(self._open_file(self._folder / MERGED), "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _append(self, name: str, line: str) -> None:
        if name not in self._names:
            self._names.append(name)
        with open(self._open_file(self._folder / name), "w", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _time_of(line: str) -> float:
    """Every line begins with its time."""
    return float(line.partition(":")[2].partition(",")[0])
