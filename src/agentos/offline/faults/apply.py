"""Turns a good reply into the one that a fault asks for."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from agentos.offline.faults.script import Fault, FaultKind
from agentos.offline.vendors.neutral import (
    Delivery,
    NeutralRefusal,
    ParsedRequest,
    Quota,
    Reason,
    Reply,
    ReplyEnding,
    Violation,
    whole,
)

REASONS = {
    FaultKind.MINUTE_QUOTA: Reason.QUOTA,
    FaultKind.INPUT_QUOTA: Reason.QUOTA,
    FaultKind.DAY_QUOTA: Reason.QUOTA,
    FaultKind.BOTH_QUOTAS: Reason.QUOTA,
    FaultKind.BARE_QUOTA: Reason.UNEXPLAINED_QUOTA,
    FaultKind.RETRY_AFTER: Reason.UNEXPLAINED_QUOTA,
    FaultKind.RAMP: Reason.RAMP,
    FaultKind.SPEND_LIMIT: Reason.SPEND_LIMIT,
    FaultKind.OWN_SPEND_LIMIT: Reason.OWN_SPEND_LIMIT,
    FaultKind.INSUFFICIENT_QUOTA: Reason.INSUFFICIENT_QUOTA,
    FaultKind.NO_CREDIT: Reason.NO_CREDIT,
    FaultKind.KEY_INVALID: Reason.KEY_INVALID,
    FaultKind.BAD_REQUEST: Reason.BAD_REQUEST,
    FaultKind.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
    FaultKind.UNPAID: Reason.UNPAID,
    FaultKind.FORBIDDEN: Reason.FORBIDDEN,
    FaultKind.NOT_FOUND: Reason.NOT_FOUND,
    FaultKind.INTERNAL: Reason.INTERNAL,
    FaultKind.BAD_GATEWAY: Reason.BAD_GATEWAY,
    FaultKind.UNAVAILABLE: Reason.UNAVAILABLE,
    FaultKind.TIMEOUT: Reason.TIMEOUT,
    FaultKind.OVERLOADED: Reason.OVERLOADED,
}
QUOTAS = {
    FaultKind.MINUTE_QUOTA: (Quota.REQUESTS,),
    FaultKind.INPUT_QUOTA: (Quota.INPUT_TOKENS,),
    FaultKind.DAY_QUOTA: (Quota.DAY,),
    FaultKind.BOTH_QUOTAS: (Quota.REQUESTS, Quota.DAY),
}
# a day's quota comes with a short delay, as Google's does, to mislead whoever believes it
DELAYS = {
    FaultKind.MINUTE_QUOTA: 36.0,
    FaultKind.INPUT_QUOTA: 36.0,
    FaultKind.DAY_QUOTA: 5.0,
    FaultKind.BOTH_QUOTAS: 5.0,
    FaultKind.RAMP: 10.0,
}
HEADERS = {FaultKind.RETRY_AFTER: "30"}
PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in to this network.</body></html>"
BLOCK = b"a" * 65536
MARK = "huge-body-goes-here"
DRIPS = 20


def refusal_for(fault: Fault, asked: ParsedRequest) -> NeutralRefusal | None:
    reason = _reason(fault.kind, asked.delivery)
    if reason is None:
        return None
    return NeutralRefusal(
        reason,
        fault.message,
        retry_delay=DELAYS.get(fault.kind) if fault.retry_delay is None else fault.retry_delay,
        retry_after=HEADERS.get(fault.kind) if fault.retry_after is None else fault.retry_after,
        violations=tuple(Violation(quota, fault.limit) for quota in QUOTAS.get(fault.kind, ())),
        model=asked.question.model,
        code=fault.code,
    )


def _reason(kind: FaultKind, delivery: Delivery) -> Reason | None:
    if kind is FaultKind.OVERLOADED_STREAM and delivery is Delivery.WHOLE:
        return Reason.OVERLOADED
    return REASONS.get(kind)


def apply_fault(fault: Fault, reply: Reply) -> Reply:
    match fault.kind:
        case FaultKind.RESET:
            return replace(reply, ending=ReplyEnding.RESET_AT_ONCE)
        case FaultKind.HANG:
            return replace(reply, ending=ReplyEnding.SILENCE)
        case FaultKind.RESET_MIDWAY:
            return replace(reply, body=_first_half(reply), ending=ReplyEnding.RESET_MIDWAY)
        case FaultKind.DRIP:
            return replace(reply, body=_pieces(b"".join(reply.body)), pause=fault.seconds / DRIPS)
        case FaultKind.CUT:
            body = b"".join(_first_half(reply))
            return Reply(200, reply.headers, (body,), length=len(body))
        case FaultKind.HTML:
            return whole(200, "text/html; charset=utf-8", PAGE)
        case FaultKind.HUGE:
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
