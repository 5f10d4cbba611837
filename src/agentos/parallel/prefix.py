"""A text stream whose every line carries its item."""

import io
import threading
from typing import TextIO

from agentos.core.text.line_assembler import LineAssembler
from agentos.outputs.format import prefixed


class OutputPrefixer(io.TextIOBase):
    """Whole lines alone reach the stream, each in one write; what threads write at once is not mixed."""

    def __init__(self, stream: TextIO, item_id: str) -> None:
        super().__init__()
        self._stream = stream
        self._prefix = f"[{item_id}]"
        self._lines: dict[int, LineAssembler] = {}
        # Protects the lines begun, and the order of lines, from the threads that write.
        self._turn = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._turn:
            prestarted = self._lines.setdefault(threading.get_ident(), LineAssembler(str))
            self._tell(prestarted.feed(text.encode("utf-8", "replace")))
        return len(text)

    def flush(self) -> None:
        """What was told is passed on; a line that has no end yet waits for it."""
        if not self.closed:
            self._stream.flush()

    def close(self) -> None:
        """Tells the lines that were left without an end; the stream stays open."""
        if not self.closed:
            with self._turn:
                while self._lines:
                    self._tell(self._lines.popitem()[1].close())
            self._stream.flush()
        super().close()

    def _tell(self, lines: list[str]) -> None:
        for line in lines:
            self._stream.write(prefixed(self._prefix, line) + "\n")
