"""Writes lines to a descriptor that may stall or close, without ever blocking the run."""

import contextlib
import os
import select
import threading
import time
from collections import deque

WRITE_SIZE = 4096  # bytes
MAX_QUEUED_LINES = 20_000


def write_at_once(descriptor: int, line: str) -> None:
    """Write directly, bypassing all buffers, as a signal handler must; skipped if the write would block."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, f"{line}\n".encode())


def is_reader_gone(descriptor: int) -> bool:
    """Whether the reader has closed its end, as `head` does."""
    poller = select.poll()
    poller.register(descriptor, 0)
    return bool(poller.poll(0))


class LineWriter:
    """Queues lines while the reader is slow; when the queue is full, counts the lines it drops."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._closed = False
        self._broken = False
        self._writes = 0
        # Protects the fields above: the run appends lines, the thread removes them.
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._write_loop, name="console", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        with self._change:
            if self._broken:
                return
            if len(self._lines) >= MAX_QUEUED_LINES:
                self._dropped += 1
                return
            self._report_dropped()
            self._lines.append(line)
            self._change.notify()

    def close(self, stall_timeout: float = 2.0) -> None:
        """Wait until everything is written, unless the reader accepts nothing for `stall_timeout` seconds."""
        with self._change:
            self._closed = True
            self._report_dropped()
            self._change.notify()
        writes, deadline = -1, time.monotonic() + stall_timeout
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._writes != writes:
                writes, deadline = self._writes, time.monotonic() + stall_timeout
            self._thread.join(0.05)

    def _report_dropped(self) -> None:
        if self._dropped:
            self._lines.append(f"[COORDINATOR] {self._dropped} lines dropped (the log files have them)")
            self._dropped = 0

    def _write_loop(self) -> None:
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
            written = os.write(self._descriptor, content[:WRITE_SIZE])
            content = content[written:]
            self._writes += 1
