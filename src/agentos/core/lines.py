"""Whole, clean lines out of whatever bytes a process writes."""

import codecs
import re
from collections.abc import Callable

LONGEST = 8192
KEPT_BACK = 512
CUT_MARK = " …"

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control and other strings
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")


def clean(text: str) -> str:
    """The line as a terminal would leave it: the last carriage-return segment, no escapes."""
    segments = [part for part in _ESCAPES.sub("", text).split("\r") if part]
    return _CONTROLS.sub("", segments[-1]) if segments else ""


class LineAssembler:
    """Give it bytes, get lines; a line over the limit comes in marked pieces."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._tail = ""

    def feed(self, chunk: bytes) -> list[str]:
        parts = (self._tail + self._decode(chunk)).split("\n")
        self._tail = parts.pop()
        lines = [piece for part in parts for piece in self._finish(part)]
        return lines + self._overflow()

    def close(self) -> list[str]:
        """What is left when the stream has ended without a newline."""
        tail, self._tail = self._tail + self._decode(b"", final=True), ""
        return self._finish(tail) if tail else []

    def _finish(self, text: str) -> list[str]:
        text = self._redact(clean(text))
        cuts = range(0, max(len(text), 1), LONGEST)
        return [text[at : at + LONGEST] + (CUT_MARK if at + LONGEST < len(text) else "") for at in cuts]

    def _overflow(self) -> list[str]:
        pieces = []
        if "\r" in self._tail and len(self._tail) > LONGEST:
            head, _, last = self._tail.rpartition("\r")
            self._tail = last or head.rpartition("\r")[2]
        while len(self._tail) >= LONGEST + KEPT_BACK:
            # A secret that begins before the cut ends before the kept-back part does.
            text = self._redact(clean(self._tail))
            pieces.append(text[:LONGEST] + CUT_MARK)
            self._tail = text[LONGEST:]
        return pieces
