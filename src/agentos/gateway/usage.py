"""Usage of the gateway: read from responses, recorded per call, summed per item."""

import json
import re
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import add_costs
from agentos.gateway.dialects.base import GatewayDialect, HeaderMap, StreamError
from agentos.models import CHARS_PER_TOKEN

MAX_LINE_BYTES = 1 << 20
MAX_WHOLE_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
MAX_INFLATED_BYTES = 1 << 22  # per chunk
_TEXT = re.compile(rb'"(?:text|content|delta|partial_json|arguments|thinking)"\s*:\s*"((?:[^"\\]|\\.)*)"')
# Events of OpenAI's responses API that repeat the whole text after its deltas.
_REPEATS_TEXT = re.compile(rb'^data:\s*\{\s*"type"\s*:\s*"response\.(?:[\w.]*\.done|completed|incomplete)"')
# The last event of a stream, after which agents close the connection.
_LAST_EVENT = re.compile(
    rb'^data:\s*(?:\[DONE\]|\{\s*"type"\s*:\s*"(?:message_stop|response\.(?:completed|incomplete|failed))"'
    rb'|\{.*"finishReason"\s*:\s*"[A-Z])'
)
_USAGE_FIELDS = ("usageMetadata", "usage")


class CallEnding(StrEnum):
    COMPLETE = "complete"
    PASSED_ON = "error passed on"
    NO_KEY = "no key"
    LEFT = "client disconnected"
    BROKEN = "connection lost"


@dataclass(slots=True)
class CallRecord:
    """One call of an agent, however many keys it needed; `cost` is None if the price is unknown."""

    item: str
    provider: str
    model: str
    ending: CallEnding = CallEnding.LEFT
    status: int = 0
    key: str = ""
    seconds: float = 0.0
    waited: float = 0.0  # seconds
    refused: int = 0
    failed: int = 0
    """Attempts that ended in a server error or without an answer."""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    is_estimate: bool = False
    is_abandoned: bool = False
    """Whether the client left before the response began; the provider may have run the model anyway."""
    traceparent: str = ""
    """The header in which the caller says which span the call belongs to."""


@dataclass(slots=True)
class ItemUsage:
    """Sum of the calls of one item, or of all of them."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    refused: int = 0
    failed: int = 0
    waited: float = 0.0  # seconds
    estimates: int = 0

    def add_call(self, record: CallRecord) -> None:
        self.add(
            ItemUsage(
                1,
                record.usage,
                record.cost,
                record.refused,
                record.failed,
                record.waited,
                record.is_estimate,
            )
        )

    def add(self, other: "ItemUsage") -> None:
        self.calls += other.calls
        self.usage += other.usage
        self.cost = add_costs(self.cost, other.cost)
        self.refused += other.refused
        self.failed += other.failed
        self.waited += other.waited
        self.estimates += other.estimates


class UsageByItem:
    """Usage per item, in the order of their first calls."""

    def __init__(self) -> None:
        self.by_item: dict[str, ItemUsage] = {}

    def add(self, record: CallRecord) -> None:
        self.by_item.setdefault(record.item, ItemUsage()).add_call(record)

    def total(self) -> ItemUsage:
        total = ItemUsage()
        for usage in self.by_item.values():
            total.add(usage)
        return total


class UsageReader:
    """Finds the usage that a response reports, in bounded memory.

    It keeps one line of an event stream, all of a short JSON body, or the tail of a long one. If a response reports no
    usage, or is cut before its last count, usage is estimated from the text that has passed.
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
        self._has_ended = False
        encoding = headers.get("content-encoding", "identity")
        self._decompressor = zlib.decompressobj(47) if encoding in ("gzip", "deflate") else None
        self._unreadable = encoding not in ("identity", "gzip", "deflate")

    def feed(self, chunk: bytes) -> None:
        if not self._unreadable and (plain := self._decompress(chunk)):
            self._size += len(plain)
            if self._is_stream:
                self._read_lines(plain)
            else:
                self._buffer += plain
                if self._size > MAX_WHOLE_BYTES:
                    del self._buffer[:-TAIL_BYTES]

    def end(self) -> None:
        """Read what is left after the last chunk."""
        self._has_ended = True
        if self._is_stream:
            self._read_line(bytes(self._buffer))
        elif self._size <= MAX_WHOLE_BYTES:
            self._read_whole()
        else:
            self._read_tail()

    def usage(self, input_tokens: int) -> Usage:
        """The reported usage, or an estimate with the given number of input tokens."""
        if not self.is_estimate:
            return self._usage
        # A stream counts its input at its start and its output at its end.
        estimate = Usage(
            1, 0 if self._usage.input_tokens else input_tokens, self._text_size // CHARS_PER_TOKEN
        )
        return self._usage.merged(estimate)

    @property
    def is_estimate(self) -> bool:
        return not self._usage.calls or not self._has_ended

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

    def _read_lines(self, plain: bytes) -> None:
        """Keep what follows the last line break, up to a limit: a line may be endless and arrive byte by byte."""
        *lines, rest = plain.split(b"\n")
        for line in lines:
            self._buffer += line
            self._read_line(bytes(self._buffer))
            self._buffer.clear()
        self._buffer += rest[: max(0, MAX_LINE_BYTES - len(self._buffer))]

    def _read_line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.events += 1
        if b'"usage' in line or b'"error"' in line:
            self._read_object(json_or_none(line[len(b"data:") :]))
        if not _REPEATS_TEXT.search(line):
            self._count_text(line)
        self._has_ended = self._has_ended or _LAST_EVENT.search(line) is not None

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
