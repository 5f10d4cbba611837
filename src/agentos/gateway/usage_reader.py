"""Reads along while an answer passes: what it used, whether it broke off."""

import json
import re
import zlib
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.gateway.dialects.base import Failure, GatewayDialect, Headers
from agentos.gateway.request_parser import CHARACTERS_A_TOKEN

MOST_LINE = 1 << 20
MOST_WHOLE = 1 << 20
TAIL = 1 << 16
MOST_INFLATED = 1 << 22
_SAID = re.compile(rb'"(?:text|content|delta|partial_json|arguments|thinking)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_COUNTED = (b'"usageMetadata"', b'"usage"')


class UsageReader:
    """Keeps a line of a stream, or the whole of a short answer, or the end of a long one; never more."""

    def __init__(self, dialect: GatewayDialect, headers: Headers) -> None:
        self._dialect = dialect
        self._usage = Usage()
        self.failure: Failure | None = None
        self.events = 0
        self._is_stream = headers.get("content-type", "").startswith("text/event-stream")
        self._kept = bytearray()
        self._size = 0
        self._said = 0
        encoding = headers.get("content-encoding", "identity")
        self._inflate = zlib.decompressobj(47) if encoding in ("gzip", "deflate") else None
        self._blind = encoding not in ("identity", "gzip", "deflate")

    def feed(self, chunk: bytes) -> None:
        if not self._blind and (plain := self._plain(chunk)):
            self._size += len(plain)
            self._kept += plain
            if self._is_stream:
                self._take_lines()
            elif self._size > MOST_WHOLE:
                del self._kept[:-TAIL]

    def end(self) -> None:
        if self._is_stream:
            self._take(bytes(self._kept))
        elif self._size <= MOST_WHOLE:
            self._take_whole()
        else:
            self._read_tail()

    def usage(self, sent: int) -> Usage:
        """What the answer says of itself; where it says nothing, an estimate."""
        if self._usage.calls:
            return self._usage
        return Usage(1, sent, self._said // CHARACTERS_A_TOKEN)

    @property
    def is_estimate(self) -> bool:
        return not self._usage.calls

    def _plain(self, chunk: bytes) -> bytes:
        if self._inflate is None:
            return chunk
        try:
            plain = self._inflate.decompress(chunk, MOST_INFLATED)
            self._blind = bool(self._inflate.unconsumed_tail)
            return plain
        except zlib.error:
            self._blind = True
            return b""

    def _take_lines(self) -> None:
        *lines, rest = bytes(self._kept).split(b"\n")
        self._kept = bytearray(rest[:MOST_LINE])
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.events += 1
        if b'"usage' in line or b'"error"' in line:
            self._read_event(json_or_none(line[len(b"data:") :]))
        if not self._usage.calls:
            self._read_usage(line)

    def _take_whole(self) -> None:
        found = json_or_none(bytes(self._kept))
        for part in found if isinstance(found, list) else [found]:
            self._read_event(part)
        if not self._usage.calls:
            self._read_usage(bytes(self._kept))

    def _read_event(self, found: Any) -> None:
        self._usage = self._dialect.usage(found, self._usage)
        self.failure = self._dialect.failure(found) or self.failure

    def _read_usage(self, text: bytes) -> None:
        self._said += sum(len(said) for said in _SAID.findall(text))

    def _read_tail(self) -> None:
        tail = self._kept.decode("utf-8", "replace")
        for name in (word.decode() for word in _COUNTED):
            _, found, rest = tail.rpartition(f"{name}:")
            if found:
                self._read_event({name.strip('"'): _first_value(rest)})
        self._said = self._size


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
