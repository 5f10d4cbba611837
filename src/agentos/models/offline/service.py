"""Carries one request from its arrival to its reply."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from .behaviour import Behaviour, Hints
from .faults import Fault, FaultScript, Kind, Sighting
from .hostile import spoil_draft, spoil_verdict
from .keys import KeyRing
from .ledger import Arrival, Entry, Ledger
from .limits import Meter, Spending
from .mischief import MARK, refusal_for, spoil_reply
from .rules import Role, answer_by_rules, item_hint
from .talk import (
    Answer,
    Asked,
    Dialect,
    Ending,
    Finish,
    Gauge,
    Purpose,
    Question,
    Reason,
    Refusal,
    Reply,
    Request,
    Stamp,
    Violation,
    count_tokens,
)

Send = Callable[[Reply], Awaitable[None]]

FINISHES = {
    Kind.BLOCKED: Finish.BLOCKED,
    Kind.SAFETY: Finish.SAFETY,
    Kind.MAX_TOKENS: Finish.MAX_TOKENS,
    Kind.OVERLOADED_STREAM: Finish.OVERLOADED,
}
HALVED = (Finish.MAX_TOKENS, Finish.OVERLOADED)


@dataclass(frozen=True, slots=True)
class Call:
    dialect: Dialect
    asked: Asked
    key: str
    role: Role
    serial: int
    prompt_tokens: int
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
        self._meters: dict[tuple[str, str], Meter] = {}
        self._serial = 0
        self.script = FaultScript(behaviour.faults)

    async def attend(self, dialect: Dialect, request: Request, send: Send) -> None:
        self._serial += 1
        asked = dialect.read(request)
        if isinstance(asked, Refusal):
            reply = dialect.refuse(replace(asked, serial=self._serial))
            await send(_stamped(dialect, reply, Stamp(self._serial, self._clock())))
            return
        call = self._call(dialect, asked, send)
        with self._ledger.witness(_arrival(call)) as entry:
            await self._witnessed(call, entry)

    def _call(self, dialect: Dialect, asked: Asked, send: Send) -> Call:
        return Call(
            dialect,
            asked,
            key=self._ring.name(asked.secret),
            role=Role.REVIEW if asked.question.wants_json else Role.DRAFT,
            serial=self._serial,
            prompt_tokens=_prompt_tokens(asked.question),
            send=send,
        )

    async def _witnessed(self, call: Call, entry: Entry) -> None:
        refusal = self._refused_key(call.asked)
        if refusal:
            await _deliver(call, entry, self._refused(call, refusal, ()))
        elif call.asked.purpose is Purpose.GENERATE:
            await self._generate(call, entry)
        else:
            await _deliver(call, entry, self._stamp(call, _aside(call), ()))

    def _refused_key(self, asked: Asked) -> Refusal | None:
        if not asked.secret:
            return Refusal(Reason.KEY_MISSING)
        if self._behaviour.any_key or self._ring.knows(asked.secret):
            return None
        return Refusal(Reason.KEY_INVALID)

    async def _generate(self, call: Call, entry: Entry) -> None:
        fault = self.script.meet(Sighting(call.key, call.role, call.asked.question.text))
        entry.fault = fault.kind if fault else None
        meter = self._meter(call)
        refusal = (fault and refusal_for(fault, call.asked)) or self._over_limit(call, meter)
        if refusal:
            await _deliver(call, entry, self._refused(call, refusal, self._gauges(meter)))
            return
        with meter.inside():
            await asyncio.sleep(self._delay(call, fault))
            await _deliver(call, entry, self._answered(call, fault, meter))

    def _meter(self, call: Call) -> Meter:
        account = self._behaviour.account(call.key)
        place = (account.bucket, call.asked.question.model if self._behaviour.per_model else "")
        if place not in self._meters:
            self._meters[place] = Meter(account.limits)
        return self._meters[place]

    def _over_limit(self, call: Call, meter: Meter) -> Refusal | None:
        question = call.asked.question
        over = meter.ask(self._clock(), Spending(call.prompt_tokens, question.reserved))
        if over and self._behaviour.hints is Hints.NONE:
            return Refusal(Reason.UNEXPLAINED_QUOTA)
        return _over_quota(over, question.model) if over else None

    def _gauges(self, meter: Meter) -> tuple[Gauge, ...]:
        return () if self._behaviour.hints is Hints.NONE else meter.gauges(self._clock())

    def _refused(self, call: Call, refusal: Refusal, gauges: tuple[Gauge, ...]) -> Reply:
        return self._stamp(call, call.dialect.refuse(replace(refusal, serial=call.serial)), gauges)

    def _answered(self, call: Call, fault: Fault | None, meter: Meter) -> Reply:
        answer = _answer(call, fault, self._clock())
        meter.written(answer.now, count_tokens(answer.text) - call.asked.question.reserved)
        reply = self._stamp(call, call.dialect.answer(call.asked, answer), self._gauges(meter))
        return spoil_reply(fault, reply) if fault else reply

    def _stamp(self, call: Call, reply: Reply, gauges: tuple[Gauge, ...]) -> Reply:
        return _stamped(call.dialect, reply, Stamp(call.serial, self._clock(), gauges))

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


def _stamped(dialect: Dialect, reply: Reply, stamp: Stamp) -> Reply:
    return replace(reply, headers=(*reply.headers, *dialect.headers(stamp)))


def _aside(call: Call) -> Reply:
    """Counting and listing meet no fault and no limit."""
    if call.asked.purpose is Purpose.LIST:
        return call.dialect.models()
    return call.dialect.count(call.prompt_tokens)


def _over_quota(over: tuple[Violation, ...], model: str) -> Refusal:
    """A limit that ends at no known time is not explained."""
    ends = any(one.wait is not None for one in over)
    return Refusal(Reason.QUOTA if ends else Reason.UNEXPLAINED_QUOTA, violations=over, model=model)


def _answer(call: Call, fault: Fault | None, now: float) -> Answer:
    text = _text(call, fault)
    finish = FINISHES.get(fault.kind, Finish.STOP) if fault else Finish.STOP
    room = len(text) // 2 if finish in HALVED else (call.asked.question.max_tokens or len(text)) * 4
    if room < len(text):
        text, finish = text[:room], finish if finish in HALVED else Finish.MAX_TOKENS
    silent = finish in (Finish.BLOCKED, Finish.SAFETY)
    return Answer("" if silent else text, call.prompt_tokens, finish, call.serial, now)


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
