"""Ids of traces and spans. They are derived from what is traced, so separate processes arrive at the same ids."""

import hashlib
import re
from dataclasses import dataclass

TRACEPARENT = "traceparent"
_FORMAT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class SpanContext:
    """A span of a trace, both ids in hexadecimal digits; `span` is empty for the trace itself."""

    trace: str
    span: str = ""

    def child(self, name: str) -> "SpanContext":
        """The child span with this name; the same name always gives the same span."""
        return SpanContext(self.trace, _digits(f"{self.trace} {name}", 16))

    @property
    def header(self) -> str:
        """The value of the W3C header `traceparent`."""
        return f"00-{self.trace}-{self.span}-01"


def item_trace(account: str, submission: int, thread: str) -> SpanContext:
    """The trace of an item. The submission's account is unique even across fleets."""
    return SpanContext(_digits(f"{account} {submission} {thread}", 32))


def read_traceparent(value: str) -> SpanContext | None:
    """The span that a request belongs to; None if there is none, or it is not recorded."""
    found = _FORMAT.fullmatch(value.strip())
    if not found or not int(found[3], 16) & 1 or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanContext(found[1], found[2])


def call_span(item: SpanContext, claim: tuple[int, int, int], lease: str) -> SpanContext:
    """The span of one call. Lease numbers are unique per machine, and a claim belongs to one machine."""
    return item.child(f"call {tuple(claim)} {lease}")


def _digits(text: str, number: int) -> str:
    return hashlib.sha256(f"agentos {text}".encode()).hexdigest()[:number]
