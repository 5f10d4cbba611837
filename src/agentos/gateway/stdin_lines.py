"""Reads standard input line by line, on which a run sends messages to its gateway."""

import contextlib
import os
import threading
from collections.abc import Callable

CHUNK = 65536  # bytes


class StdinLines:
    """Reads without Python's own buffer: a thread that waits inside it when the interpreter ends would abort the process."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._partial = b""

    def next(self) -> bytes:
        """The next line; empty at the end."""
        while b"\n" not in self._partial:
            chunk = os.read(self._descriptor, CHUNK)
            if not chunk:
                last, self._partial = self._partial, b""
                return last
            self._partial += chunk
        line, _, self._partial = self._partial.partition(b"\n")
        return line + b"\n"

    def follow(self, on_line: Callable[[bytes], object], on_end: Callable[[], object]) -> None:
        """Call `on_line` for every further line, and `on_end` at the end, both on another thread."""

        def read() -> None:
            # RuntimeError: the event loop that the callbacks post to is closed already.
            with contextlib.suppress(RuntimeError):
                with contextlib.suppress(OSError):
                    while line := self.next():
                        on_line(line)
                on_end()

        threading.Thread(target=read, daemon=True).start()
