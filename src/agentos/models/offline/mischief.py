"""Turns a good reply into the one that a fault asks for."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from .faults import Fault, Kind
from .talk import Ending, Reason, Refusal, Reply, whole

REASONS = {
    Kind.MINUTE_QUOTA: Reason.MINUTE_QUOTA,
    Kind.DAY_QUOTA: Reason.DAY_QUOTA,
    Kind.BOTH_QUOTAS: Reason.BOTH_QUOTAS,
    Kind.BARE_QUOTA: Reason.UNEXPLAINED_QUOTA,
    Kind.RETRY_AFTER: Reason.UNEXPLAINED_QUOTA,
    Kind.KEY_INVALID: Reason.KEY_INVALID,
    Kind.BAD_REQUEST: Reason.BAD_REQUEST,
    Kind.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
    Kind.UNPAID: Reason.UNPAID,
    Kind.FORBIDDEN: Reason.FORBIDDEN,
    Kind.NOT_FOUND: Reason.NOT_FOUND,
    Kind.INTERNAL: Reason.INTERNAL,
    Kind.BAD_GATEWAY: Reason.BAD_GATEWAY,
    Kind.UNAVAILABLE: Reason.UNAVAILABLE,
    Kind.TIMEOUT: Reason.TIMEOUT,
    Kind.OVERLOADED: Reason.OVERLOADED,
}
# a day's quota comes with a short delay, as Google's does, to mislead whoever believes it
DELAYS = {Kind.MINUTE_QUOTA: 36.0, Kind.DAY_QUOTA: 5.0, Kind.BOTH_QUOTAS: 5.0}
HEADERS = {Kind.RETRY_AFTER: "30"}
PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in to this network.</body></html>"
BLOCK = b"a" * 65536
MARK = "huge-body-goes-here"
DRIPS = 20


def refusal_for(fault: Fault, model: str) -> Refusal | None:
    reason = REASONS.get(fault.kind)
    if reason is None:
        return None
    delay = DELAYS.get(fault.kind) if fault.retry_delay is None else fault.retry_delay
    after = HEADERS.get(fault.kind) if fault.retry_after is None else fault.retry_after
    return Refusal(reason, fault.message, delay, after, fault.limit, model)


def spoil_reply(fault: Fault, reply: Reply) -> Reply:
    match fault.kind:
        case Kind.RESET:
            return replace(reply, ending=Ending.RESET_AT_ONCE)
        case Kind.HANG:
            return replace(reply, ending=Ending.SILENCE)
        case Kind.RESET_MIDWAY:
            return replace(reply, body=_first_half(reply), ending=Ending.RESET_MIDWAY)
        case Kind.DRIP:
            return replace(reply, body=_pieces(b"".join(reply.body)), pause=fault.seconds / DRIPS)
        case Kind.CUT:
            body = b"".join(_first_half(reply))
            return Reply(200, reply.headers, (body,), length=len(body))
        case Kind.HTML:
            return whole(200, "text/html; charset=utf-8", PAGE)
        case Kind.HUGE:
            return replace(
                reply,
                body=_huge(reply, int(fault.megabytes * 1024 * 1024)),
                length=None,
            )
        case _:
            return reply


def _first_half(reply: Reply) -> tuple[bytes, ...]:
    body = b"".join(reply.body)
    return (body[: len(body) // 2],)


def _pieces(body: bytes) -> Iterator[bytes]:
    size = -(-len(body) // DRIPS)
    return (body[start : start + size] for start in range(0, len(body), size))


def _huge(reply: Reply, size: int) -> Iterator[bytes]:
    """Well-formed to the end, and never in memory as a whole."""
    before, _, after = b"".join(reply.body).partition(MARK.encode())
    yield before
    yield from repeat(BLOCK, size // len(BLOCK))
    yield BLOCK[: size % len(BLOCK)]
    yield after
