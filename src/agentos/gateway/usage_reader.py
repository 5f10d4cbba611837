"""Reads token usage and errors from a response while it is streamed to the agent."""

import json
import re
import zlib
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import GatewayDialect, HeaderMap, StreamError
from agentos.models import CHARS_PER_TOKEN

MAX_LINE_BYTES = 1 << 20
MAX_WHOLE_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
MAX_INFLATED_BYTES = 1 << 22  # per chunk
_TEXT = re.compile(rb'"(?:text|content|delta|partial_json|arguments|thinking)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_USAGE_FIELDS = ("usageMetadata", "usage")


class UsageReader:
    """Finds the usage that a response reports, in bounded memory.

    It keeps one line of an event stream, the whole of a short JSON body, or the tail of a long one. A response
    that reports no usage is estimated by the length of its text.
    """

    def __init__(self, dialect: GatewayDialect, headers: HeaderMap) -> None:
        self._dialect = dialect
        self._usage = Usage()
        self.failure: StreamError | None = None
        self.events = 0
        self._is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._buffer = bytearray()
        self._size = 0
        self._text_size = 0
        encoding = headers.get("content-encoding", "identity")
        self._decompressor = zlib.decompressobj(47) if encoding in ("gzip", "deflate") else None
        self._unreadable = encoding not in ("identity", "gzip", "deflate")

    def feed(self, chunk: bytes) -> None:
        if not self._unreadable and (plain := self._decompress(chunk)):
            self._size += len(plain)
            self._buffer += plain
            if self._is_stream:
                self._read_lines()
            elif self._size > MAX_WHOLE_BYTES:
                del self._buffer[:-TAIL_BYTES]

    def end(self) -> None:
        """Reads what is left after the last chunk."""
        if self._is_stream:
            self._read_line(bytes(self._buffer))
        elif self._size <= MAX_WHOLE_BYTES:
            self._read_whole()
        else:
            self._read_tail()

    def usage(self, input_tokens: int) -> Usage:
        """The reported usage, or an estimate with the given number of input tokens."""
        if self._usage.calls:
            return self._usage
        return Usage(1, input_tokens, self._text_size // CHARS_PER_TOKEN)

    @property
    def is_estimate(self) -> bool:
        return not self._usage.calls

    def _decompress(self, chunk: bytes) -> bytes:
        if self._decompressor is None:
            return chunk
        try:
            plain = self._decompressor.decompress(chunk, MAX_INFLATED_BYTES)
            self._unreadable = bool(self._decompressor.unconsumed_tail)
            return plain
        except zlib.error:
            self._unreadable = True
            return b""

    def _read_lines(self) -> None:
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest[:MAX_LINE_BYTES])
        for line in lines:
            self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.events += 1
        if b'"usage' in line or b'"error"' in line:
            self._read_object(json_or_none(line[len(b"data:") :]))
        if not self._usage.calls:
            self._count_text(line)

    def _read_whole(self) -> None:
        parsed = json_or_none(bytes(self._buffer))
        for part in parsed if isinstance(parsed, list) else [parsed]:
            self._read_object(part)
        if not self._usage.calls:
            self._count_text(bytes(self._buffer))

    def _read_object(self, parsed: Any) -> None:
        self._usage = self._dialect.usage(parsed, self._usage)
        self.failure = self._dialect.failure(parsed) or self.failure

    def _count_text(self, text: bytes) -> None:
        self._text_size += sum(len(part) for part in _TEXT.findall(text))

    def _read_tail(self) -> None:
        tail = self._buffer.decode("utf-8", "replace")
        for name in _USAGE_FIELDS:
            _, found, rest = tail.rpartition(f'"{name}":')
            if found:
                self._read_object({name: _first_value(rest)})
        self._text_size = self._size


def json_or_none(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _first_value(text: str) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None
