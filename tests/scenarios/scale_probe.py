"""Runs a project's items with the inline engine and measures the cost of each batch of them.

python -m tests.scenarios.scale_probe FOLDER [STOP_AFTER]
"""

import json
import sys
import tracemalloc
from pathlib import Path

from bench.scale import run_all

from agentos.core.protocol import events
from agentos.storage.home import Home

BATCH = 50


class Counter:
    """A listener that counts file system calls (from Python's audit hook) and traced memory."""

    def __init__(self) -> None:
        self.laps: list[dict[str, int]] = []
        self._ended = self._opened = self._listed = 0

    def on_audit_event(self, event: str, arguments: object) -> None:
        self._opened += event == "open"
        self._listed += event in ("os.listdir", "os.scandir")

    def on_event(self, event: events.Event, at: float) -> None:
        if isinstance(event, events.ItemEnded) and event.attempts:
            self._ended += 1
            if self._ended % BATCH == 0:
                used, _ = tracemalloc.get_traced_memory()
                self.laps.append({"opened": self._opened, "listed": self._listed, "bytes": used})

    def close(self) -> None:
        pass


def main(folder: Path, stop_after: int | None) -> None:
    counter = Counter()
    sys.addaudithook(counter.on_audit_event)
    tracemalloc.start()
    measured = run_all(folder / "project", Home(folder / "home"), BATCH, stop_after, [counter])
    print(json.dumps({"code": measured.code, "laps": counter.laps}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
