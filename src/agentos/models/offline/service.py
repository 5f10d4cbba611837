"""Carries one request from its arrival to its reply."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .behaviour import Behaviour
from .faults import Fault, FaultScript, Kind, Sighting
from .hostile import spoil_draft, spoil_verdict
from .keys import KeyRing
from .ledger import Arrival, Entry, Ledger
from .limits import Meter, Over, Quota
from .mischief import MARK, refusal_for, spoil_reply
from .rules import Role, answer_by_rules, item_hint
from .talk import (
    Answer,
    Asked,
    Dialect,
    Ending,
    Finish,
    Purpose,
    Question,
    Reason,
    Refusal,
    Reply,
    Request,
    count_tokens,
)

Send = Callable[[Reply], Awaitable[None]]

FINISHES = {
    Kind.BLOCKED: Finish.BLOCKED,
    Kind.SAFETY: Finish.SAFETY,
    Kind.MAX_TOKENS: Finish.MAX_TOKENS,
}
REASONS = {
    Quota.MINUTE: Reason.MINUTE_QUOTA,
    Quota.DAY: Reason.DAY_QUOTA,
    Quota.CONCURRENCY: Reason.UNEXPLAINED_QUOTA,
}


@dataclass(frozen=True, slots=True)
class Call:
    dialect: Dialect
    asked: Asked
    key: str
    role: Role
    send: Send


class Service:
    """Owns the meters, the script of faults and the ledger; lives on one event loop."""

    def __init__(
        self,
        behaviour: Behaviour,
        ring: KeyRing,
        ledger: Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._behaviour = behaviour
        self._ring = ring
        self._ledger = ledger
        self._clock = clock
        self._meters: dict[str, Meter] = {}
        self.script = FaultScript(behaviour.faults)

    async def attend(self, dialect: Dialect, request: Request, send: Send) -> None:
        asked = dialect.read(request)
        if isinstance(asked, Refusal):
            await send(dialect.refuse(asked))
            return
        role = Role.REVIEW if asked.question.wants_json else Role.DRAFT
        call = Call(dialect, asked, self._ring.name(asked.secret), role, send)
        with self._ledger.witness(_arrival(call)) as entry:
            await self._witnessed(call, entry)

    async def _witnessed(self, call: Call, entry: Entry) -> None:
        refusal = self._refused_key(call.asked)
        if refusal:
            await _deliver(call, entry, call.dialect.refuse(refusal))
        elif call.asked.purpose is Purpose.GENERATE:
            await self._generate(call, entry)
        else:
            await _deliver(call, entry, _aside(call))

    def _refused_key(self, asked: Asked) -> Refusal | None:
        if not asked.secret:
            return Refusal(Reason.KEY_MISSING)
        if self._behaviour.any_key or self._ring.knows(asked.secret):
            return None
        return Refusal(Reason.KEY_INVALID)

    async def _generate(self, call: Call, entry: Entry) -> None:
        question = call.asked.question
        fault = self.script.meet(Sighting(call.key, call.role, question.text))
        entry.fault = fault.kind if fault else None
        meter = self._meter(call.key)
        refusal = (fault and refusal_for(fault, question.model)) or self._over_limit(meter, question.model)
        if refusal:
            await _deliver(call, entry, call.dialect.refuse(refusal))
            return
        with meter.inside():
            await asyncio.sleep(self._delay(call, fault))
            await _deliver(call, entry, _answered(call, fault))

    def _meter(self, key: str) -> Meter:
        bucket = self._behaviour.buckets.get(key, f"of {key}")
        return self._meters.setdefault(bucket, Meter(self._behaviour.limits))

    def _over_limit(self, meter: Meter, model: str) -> Refusal | None:
        over = meter.ask(self._clock())
        return _over_quota(over, model) if over else None

    def _delay(self, call: Call, fault: Fault | None) -> float:
        behaviour = self._behaviour
        reviews = behaviour.review_latency if call.role is Role.REVIEW else None
        added = fault.seconds if fault and fault.kind is Kind.SLOW else 0.0
        return (reviews or behaviour.latency).of(behaviour.seed, call.asked.question.text) + added


async def _deliver(call: Call, entry: Entry, reply: Reply) -> None:
    said_something = reply.ending in (Ending.COMPLETE, Ending.RESET_MIDWAY)
    entry.status = reply.status if said_something else None
    await call.send(reply)
    entry.ending = reply.ending


def _arrival(call: Call) -> Arrival:
    question = call.asked.question
    role = call.role.value if call.asked.purpose is Purpose.GENERATE else call.asked.purpose.value
    return Arrival(
        call.key,
        role,
        question.model,
        item_hint(question.text),
        question.system + question.text,
    )


def _aside(call: Call) -> Reply:
    """Counting and listing meet no fault and no limit."""
    if call.asked.purpose is Purpose.LIST:
        return call.dialect.models()
    return call.dialect.count(_prompt_tokens(call.asked.question))


def _over_quota(over: Over, model: str) -> Refusal:
    # the day's true end is kept back, as Google does
    delay = None if over.quota is Quota.CONCURRENCY else min(over.wait, 60.0)
    return Refusal(REASONS[over.quota], retry_delay=delay, limit=over.limit, model=model)


def _answered(call: Call, fault: Fault | None) -> Reply:
    reply = call.dialect.answer(call.asked, _answer(call, fault))
    return spoil_reply(fault, reply) if fault else reply


def _answer(call: Call, fault: Fault | None) -> Answer:
    question = call.asked.question
    text, finish = (
        _text(call, fault),
        FINISHES.get(fault.kind, Finish.STOP) if fault else Finish.STOP,
    )
    room = len(text) // 2 if finish is Finish.MAX_TOKENS else (question.max_tokens or len(text)) * 4
    if room < len(text):
        text, finish = text[:room], Finish.MAX_TOKENS
    silent = finish in (Finish.BLOCKED, Finish.SAFETY)
    return Answer("" if silent else text, _prompt_tokens(question), finish)


def _text(call: Call, fault: Fault | None) -> str:
    text = answer_by_rules(call.role, call.asked.question.text)
    if fault and fault.kind is Kind.HUGE:
        return MARK
    if fault and fault.kind is Kind.HOSTILE:
        spoil = spoil_verdict if call.role is Role.REVIEW else spoil_draft
        return spoil(fault.payload, text)
    return text


def _prompt_tokens(question: Question) -> int:
    return count_tokens(question.system + question.text)
