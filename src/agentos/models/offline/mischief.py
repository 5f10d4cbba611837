"""Turns a good reply into the one that a fault asks for."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from .faults import Fault, Kind
from .talk import Asked, Delivery, Ending, Quota, Reason, Refusal, Reply, Violation, whole

REASONS = {
    Kind.MINUTE_QUOTA: Reason.QUOTA,
    Kind.INPUT_QUOTA: Reason.QUOTA,
    Kind.DAY_QUOTA: Reason.QUOTA,
    Kind.BOTH_QUOTAS: Reason.QUOTA,
    Kind.BARE_QUOTA: Reason.UNEXPLAINED_QUOTA,
    Kind.RETRY_AFTER: Reason.UNEXPLAINED_QUOTA,
    Kind.RAMP: Reason.RAMP,
    Kind.SPEND_LIMIT: Reason.SPEND_LIMIT,
    Kind.OWN_SPEND_LIMIT: Reason.OWN_SPEND_LIMIT,
    Kind.INSUFFICIENT_QUOTA: Reason.INSUFFICIENT_QUOTA,
    Kind.NO_CREDIT: Reason.NO_CREDIT,
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
QUOTAS = {
    Kind.MINUTE_QUOTA: (Quota.REQUESTS,),
    Kind.INPUT_QUOTA: (Quota.INPUT_TOKENS,),
    Kind.DAY_QUOTA: (Quota.DAY,),
    Kind.BOTH_QUOTAS: (Quota.REQUESTS, Quota.DAY),
}
# a day's quota comes with a short delay, as Google's does, to mislead whoever believes it
DELAYS = {
    Kind.MINUTE_QUOTA: 36.0,
    Kind.INPUT_QUOTA: 36.0,
    Kind.DAY_QUOTA: 5.0,
    Kind.BOTH_QUOTAS: 5.0,
    Kind.RAMP: 10.0,
}
HEADERS = {Kind.RETRY_AFTER: "30"}
PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in to this network.</body></html>"
BLOCK = b"a" * 65536
MARK = "huge-body-goes-here"
DRIPS = 20


def refusal_for(fault: Fault, asked: Asked) -> Refusal | None:
    reason = _reason(fault.kind, asked.delivery)
    if reason is None:
        return None
    return Refusal(
        reason,
        fault.message,
        retry_delay=DELAYS.get(fault.kind) if fault.retry_delay is None else fault.retry_delay,
        retry_after=HEADERS.get(fault.kind) if fault.retry_after is None else fault.retry_after,
        violations=tuple(Violation(quota, fault.limit) for quota in QUOTAS.get(fault.kind, ())),
        model=asked.question.model,
        code=fault.code,
    )


def _reason(kind: Kind, delivery: Delivery) -> Reason | None:
    if kind is Kind.OVERLOADED_STREAM and delivery is Delivery.WHOLE:
        return Reason.OVERLOADED
    return REASONS.get(kind)


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
