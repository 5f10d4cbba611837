"""Writes lines to a descriptor that may stall or close, without ever holding up the run."""

import contextlib
import os
import select
import threading
import time
from collections import deque

AT_ONCE = 4096
MOST_LINES = 20_000


def write_at_once(descriptor: int, line: str) -> None:
    """Past everything that is buffered, as a signal's handler must; not to a reader that takes nothing."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, f"{line}\n".encode())


def is_reader_gone(descriptor: int) -> bool:
    """Whether its reader has gone, as head does when it has seen enough."""
    waiting = select.poll()
    waiting.register(descriptor, 0)
    return bool(waiting.poll(0))


class LineWriter:
    """Lines wait here while the reader is slow; when too many do, the newest are counted, not kept."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._closed = False
        self._broken = False
        self._progress = 0
        # Protects the fields above: the run appends, the thread takes away.
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        with self._change:
            if self._broken:
                return
            if len(self._lines) >= MOST_LINES:
                self._dropped += 1
                return
            self._count_dropped()
            self._lines.append(line)
            self._change.notify()

    def close(self, patience: float = 2.0) -> None:
        """Waits for the rest to be written, as long as the reader makes any progress."""
        with self._change:
            self._closed = True
            self._count_dropped()
            self._change.notify()
        seen, deadline = -1, time.monotonic() + patience
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._progress != seen:
                seen, deadline = self._progress, time.monotonic() + patience
            self._thread.join(0.05)

    def _count_dropped(self) -> None:
        if self._dropped:
            self._lines.append(f"[COORDINATOR] {self._dropped} lines dropped (the log files have them)")
            self._dropped = 0

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._write_out(batch)
            except OSError:
                with self._change:
                    self._broken = True
                    self._lines.clear()
                return

    def _next_batch(self) -> bytes | None:
        with self._change:
            while not self._lines and not self._closed:
                self._change.wait(1.0)
            if not self._lines:
                return None
            lines = [self._lines.popleft() for _ in range(min(len(self._lines), 64))]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

    def _write_out(self, content: bytes) -> None:
        while content:
            written = os.write(self._descriptor, content[:AT_ONCE])
            content = content[written:]
            self._progress += 1
