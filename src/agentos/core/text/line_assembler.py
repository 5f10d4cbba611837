"""Whole, clean lines out of whatever bytes a process writes."""

import codecs
import re
from collections.abc import Callable

MAX_LINE = 8192
KEPT_BACK = 512
ENOUGH = 2 * (MAX_LINE + KEPT_BACK)
CUT_MARK = " …"

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control and other strings
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]?"
)
_OPEN_ESCAPE = re.compile(
    r"(\x1b\])[^\x07\x1b]*(\x1b?)\Z|(\x1b[PX^_])[^\x1b]*(\x1b?)\Z|(\x1b\[|\x9b)[ -?]*\Z|(\x1b)[ -/]*\Z"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")


def clean(text: str) -> str:
    """The line as a terminal would leave it: the last carriage-return segment, no escapes."""
    segments = [part for part in _ESCAPES.sub("", text).split("\r") if part]
    return _CONTROLS.sub("", segments[-1]) if segments else ""


def one_line(text: str) -> str:
    """A text from outside, such as a title or an error, that can neither end its line nor move the cursor."""
    return text if text.isprintable() else clean(" ".join(text.splitlines()))


class LineAssembler:
    """Give it bytes, get lines; a line over the limit comes in marked pieces."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._tail = ""

    def feed(self, chunk: bytes) -> list[str]:
        first, *others = self._decode(chunk).split("\n")
        lines = self._append(first)
        for other in others:
            tail, self._tail = self._tail, ""
            lines += self._finish(tail) + self._append(other)
        return lines

    def close(self) -> list[str]:
        """What is left when the stream has ended without a newline."""
        tail, self._tail = self._tail + self._decode(b"", final=True), ""
        return self._finish(tail) if tail else []

    def _finish(self, text: str) -> list[str]:
        text = self._redact(clean(text))
        cuts = range(0, max(len(text), 1), MAX_LINE)
        return [text[at : at + MAX_LINE] + (CUT_MARK if at + MAX_LINE < len(text) else "") for at in cuts]

    def _append(self, text: str) -> list[str]:
        """Cut whenever so much has come together, so that it does not matter how the bytes came."""
        pieces = []
        while text:
            room = ENOUGH - len(self._tail)
            self._tail, text = self._tail + text[:room], text[room:]
            if len(self._tail) == ENOUGH:
                pieces += self._cut()
        return pieces

    def _cut(self) -> list[str]:
        unfinished = _OPEN_ESCAPE.search(self._tail)
        head = self._tail[: unfinished.start()] if unfinished else self._tail
        # Of an escape that goes on, the beginning is enough to know that the rest is to be stripped.
        prestarted = "".join(part or "" for part in unfinished.groups()) if unfinished else ""
        returned = "\r" if _ESCAPES.sub("", head).endswith("\r") else ""
        text, pieces = self._redact(clean(head)), []
        while len(text) >= MAX_LINE + KEPT_BACK:
            # A secret that begins before the cut ends before the kept-back part does.
            pieces.append(text[:MAX_LINE] + CUT_MARK)
            text = text[MAX_LINE:]
        self._tail = text + returned + prestarted
        return pieces
