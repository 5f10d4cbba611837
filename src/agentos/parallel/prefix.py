"""A text stream that prefixes every line with its item's id."""

import io
import threading
from typing import TextIO

from agentos.core.text.line_assembler import LineAssembler
from agentos.outputs.format import prefixed


class OutputPrefixer(io.TextIOBase):
    """Writes to another stream, with every line prefixed by `[item_id]`.

        print("hello", file=OutputPrefixer(sys.stdout, "LLD-42"))  # [LLD-42] hello

    Only complete lines reach the underlying stream, each in a single write, so the output of several threads or
    prefixers is never mixed within a line. An incomplete last line is written on `close`, which leaves the underlying
    stream open.
    """

    def __init__(self, stream: TextIO, item_id: str) -> None:
        super().__init__()
        self._stream = stream
        self._prefix = f"[{item_id}]"
        self._lines: dict[int, LineAssembler] = {}
        # Protects the incomplete lines, and the order of writes, from concurrent threads.
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._lock:
            assembler = self._lines.setdefault(threading.get_ident(), LineAssembler(str))
            self._write_lines(assembler.feed(text.encode("utf-8", "replace")))
        return len(text)

    def flush(self) -> None:
        """Flushes the underlying stream. An incomplete line stays buffered."""
        if not self.closed:
            self._stream.flush()

    def close(self) -> None:
        """Writes the incomplete lines. The underlying stream stays open."""
        if not self.closed:
            with self._lock:
                while self._lines:
                    self._write_lines(self._lines.popitem()[1].close())
            self._stream.flush()
        super().close()

    def _write_lines(self, lines: list[str]) -> None:
        for line in lines:
            self._stream.write(prefixed(self._prefix, line) + "\n")
