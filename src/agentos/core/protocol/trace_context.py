"""Names of traces and spans. They follow from what is traced, so that processes that share nothing use the same ones."""

import hashlib
import re
from dataclasses import dataclass

TRACEPARENT = "traceparent"
_FORMAT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class SpanContext:
    """A span of a trace, in hexadecimal digits; an empty `span` is none."""

    trace: str
    span: str = ""

    def child(self, name: str) -> "SpanContext":
        """The span of this name; the same name is the same span."""
        return SpanContext(self.trace, _digits(f"{self.trace} {name}", 16))

    @property
    def header(self) -> str:
        """The value of W3C's header `traceparent`."""
        return f"00-{self.trace}-{self.span}-01"


def item_trace(account: str, submission: int, thread: str) -> SpanContext:
    """The trace of an item. The submission's account is unique, also among fleets."""
    return SpanContext(_digits(f"{account} {submission} {thread}", 32))


def read_traceparent(value: str) -> SpanContext | None:
    """The span that a request belongs to; None if there is none, or it is not recorded."""
    found = _FORMAT.fullmatch(value.strip())
    if not found or not int(found[3], 16) & 1 or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanContext(found[1], found[2])


def call_span(item: SpanContext, claim: tuple[int, int, int], lease: str) -> SpanContext:
    """The span of one call: leases are numbered on each machine, and a claim has one."""
    return item.child(f"call {tuple(claim)} {lease}")


def _digits(text: str, number: int) -> str:
    return hashlib.sha256(f"agentos {text}".encode()).hexdigest()[:number]
