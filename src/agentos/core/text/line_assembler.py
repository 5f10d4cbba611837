"""Line assembler: turns the raw bytes of a process into clean, redacted lines."""

import codecs
import re
from collections.abc import Callable

MAX_LINE = 8192  # characters
OVERLAP = 512  # characters kept back at a cut, so that a secret across the cut is still found
BUFFER_SIZE = 2 * (MAX_LINE + OVERLAP)  # characters
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
# They reorder the text that follows, so a terminal would show something other than what is there.
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return the line as a terminal would show it: the last carriage-return segment, without escapes.

    Characters that reorder text are shown, as `<U+202E>`.
    """
    segments = [part for part in _ESCAPES.sub("", text).split("\r") if part]
    if not segments:
        return ""
    line = _CONTROLS.sub("", segments[-1])
    return line if line.isascii() else _BIDI.sub(lambda found: f"<U+{ord(found[0]):04X}>", line)


def clean_lines(text: str) -> str:
    """Make text from outside that may have several lines safe to print."""
    return _storable("\n".join(clean(line) for line in text.split("\n")))


def find_open_escape(text: str) -> int:
    """Where an escape sequence starts that is incomplete at the end of the text; the text's length if none does."""
    found = _OPEN_ESCAPE.search(text)
    return found.start() if found else len(text)


def one_line(text: str) -> str:
    """Make text from outside, such as a title or an error, safe to print: no line breaks, no escapes."""
    return text if text.isprintable() else _storable(clean(" ".join(text.splitlines())))


def _storable(text: str) -> str:
    """The text without lone surrogates: they stand for bytes of a file name that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()


class LineAssembler:
    """Splits a byte stream into lines without escape sequences and secrets.

    Memory stays bounded: a line longer than `MAX_LINE` comes in pieces that end with a mark. The result does
    not depend on how the bytes are chunked.

        assembler = LineAssembler(redactor)
        for line in assembler.feed(os.read(fd, 65536)):
            ...
        assembler.close()
    """

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
        """Return what is left when the stream ends without a newline."""
        tail, self._tail = self._tail + self._decode(b"", final=True), ""
        return self._finish(tail) if tail else []

    def _finish(self, text: str) -> list[str]:
        text = self._redact(clean(text))
        cuts = range(0, max(len(text), 1), MAX_LINE)
        return [text[at : at + MAX_LINE] + (CUT_MARK if at + MAX_LINE < len(text) else "") for at in cuts]

    def _append(self, text: str) -> list[str]:
        """Buffer text, and cut whenever the buffer is full, however the text was chunked."""
        pieces = []
        while text:
            room = BUFFER_SIZE - len(self._tail)
            self._tail, text = self._tail + text[:room], text[room:]
            if len(self._tail) == BUFFER_SIZE:
                pieces += self._cut()
        return pieces

    def _cut(self) -> list[str]:
        unfinished = _OPEN_ESCAPE.search(self._tail)
        head = self._tail[: unfinished.start()] if unfinished else self._tail
        # The start of an unfinished escape is enough to strip the rest of it later.
        escape_start = "".join(part or "" for part in unfinished.groups()) if unfinished else ""
        carriage_return = "\r" if _ESCAPES.sub("", head).endswith("\r") else ""
        text, pieces = self._redact(clean(head)), []
        while len(text) >= MAX_LINE + OVERLAP:
            # A secret that starts before the cut ends within the overlap.
            pieces.append(text[:MAX_LINE] + CUT_MARK)
            text = text[MAX_LINE:]
        self._tail = text + carriage_return + escape_start
        return pieces
