"""Carries one request from its arrival to its reply."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agentos.offline.call_log import Arrival, CallLog, CallLogEntry
from agentos.offline.config import Hints, ServerConfig
from agentos.offline.faults.apply import MARK, apply_fault, refusal_for
from agentos.offline.faults.hostile_payloads import spoil_draft, spoil_verdict
from agentos.offline.faults.script import CallInfo, Fault, FaultKind, FaultScript
from agentos.offline.keys import KeyRing
from agentos.offline.limits.limiter import BucketLimiter, Spending
from agentos.offline.rules import Role, answer_by_rules, item_hint
from agentos.offline.vendors.neutral import (
    Finish,
    Gauge,
    NeutralAnswer,
    NeutralQuestion,
    NeutralRefusal,
    NeutralRequest,
    OfflineDialect,
    ParsedRequest,
    Purpose,
    Reason,
    Reply,
    ReplyEnding,
    Stamp,
    Violation,
    count_tokens,
)

Send = Callable[[Reply], Awaitable[None]]

FINISHES = {
    FaultKind.BLOCKED: Finish.BLOCKED,
    FaultKind.SAFETY: Finish.SAFETY,
    FaultKind.MAX_TOKENS: Finish.MAX_TOKENS,
    FaultKind.OVERLOADED_STREAM: Finish.OVERLOADED,
}
HALVED = (Finish.MAX_TOKENS, Finish.OVERLOADED)


@dataclass(frozen=True, slots=True)
class OfflineCall:
    dialect: OfflineDialect
    asked: ParsedRequest
    key: str
    role: Role
    serial: int
    prompt_tokens: int
    send: Send


class OfflineService:
    """Owns the meters, the script of faults and the ledger; lives on one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        ring: KeyRing,
        call_log: CallLog,
        clock: Callable[[], float],
    ) -> None:
        self._behaviour = config
        self._ring = ring
        self._ledger = call_log
        self._clock = clock
        self._limiters: dict[tuple[str, str], BucketLimiter] = {}
        self._serial = 0
        self.script = FaultScript(config.faults)

    async def handle(self, dialect: OfflineDialect, request: NeutralRequest, send: Send) -> None:
        self._serial += 1
        asked = dialect.read(request)
        if isinstance(asked, NeutralRefusal):
            reply = dialect.refuse(replace(asked, serial=self._serial))
            await send(_stamped(dialect, reply, Stamp(self._serial, self._clock())))
            return
        call = self._call(dialect, asked, send)
        with self._ledger.record(_arrival(call)) as entry:
            await self._recorded(call, entry)

    def _call(self, dialect: OfflineDialect, asked: ParsedRequest, send: Send) -> OfflineCall:
        return OfflineCall(
            dialect,
            asked,
            key=self._ring.name(asked.secret),
            role=Role.REVIEW if asked.question.wants_json else Role.DRAFT,
            serial=self._serial,
            prompt_tokens=_prompt_tokens(asked.question),
            send=send,
        )

    async def _recorded(self, call: OfflineCall, entry: CallLogEntry) -> None:
        refusal = self._refused_key(call.asked)
        if refusal:
            await _deliver(call, entry, self._refused(call, refusal, ()))
        elif call.asked.purpose is Purpose.GENERATE:
            await self._generate(call, entry)
        else:
            await _deliver(call, entry, self._stamp(call, _aside(call), ()))

    def _refused_key(self, asked: ParsedRequest) -> NeutralRefusal | None:
        if not asked.secret:
            return NeutralRefusal(Reason.KEY_MISSING)
        if self._behaviour.any_key or self._ring.knows(asked.secret):
            return None
        return NeutralRefusal(Reason.KEY_INVALID)

    async def _generate(self, call: OfflineCall, entry: CallLogEntry) -> None:
        fault = self.script.meet(CallInfo(call.key, call.role, call.asked.question.text))
        entry.fault = fault.kind if fault else None
        meter = self._limiter(call)
        refusal = (fault and refusal_for(fault, call.asked)) or self._over_limit(call, meter)
        if refusal:
            await _deliver(call, entry, self._refused(call, refusal, self._gauges(meter)))
            return
        with meter.inside():
            await asyncio.sleep(self._delay(call, fault))
            await _deliver(call, entry, self._answered(call, fault, meter))

    def _limiter(self, call: OfflineCall) -> BucketLimiter:
        account = self._behaviour.account(call.key)
        place = (account.bucket, call.asked.question.model if self._behaviour.per_model else "")
        if place not in self._limiters:
            self._limiters[place] = BucketLimiter(account.limits)
        return self._limiters[place]

    def _over_limit(self, call: OfflineCall, meter: BucketLimiter) -> NeutralRefusal | None:
        question = call.asked.question
        over = meter.ask(self._clock(), Spending(call.prompt_tokens, question.reserved))
        if over and self._behaviour.hints is Hints.NONE:
            return NeutralRefusal(Reason.UNEXPLAINED_QUOTA)
        return _over_quota(over, question.model) if over else None

    def _gauges(self, meter: BucketLimiter) -> tuple[Gauge, ...]:
        return () if self._behaviour.hints is Hints.NONE else meter.gauges(self._clock())

    def _refused(self, call: OfflineCall, refusal: NeutralRefusal, gauges: tuple[Gauge, ...]) -> Reply:
        return self._stamp(call, call.dialect.refuse(replace(refusal, serial=call.serial)), gauges)

    def _answered(self, call: OfflineCall, fault: Fault | None, meter: BucketLimiter) -> Reply:
        answer = _answer(call, fault, self._clock())
        meter.written(answer.now, count_tokens(answer.text) - call.asked.question.reserved)
        reply = self._stamp(call, call.dialect.answer(call.asked, answer), self._gauges(meter))
        return apply_fault(fault, reply) if fault else reply

    def _stamp(self, call: OfflineCall, reply: Reply, gauges: tuple[Gauge, ...]) -> Reply:
        return _stamped(call.dialect, reply, Stamp(call.serial, self._clock(), gauges))

    def _delay(self, call: OfflineCall, fault: Fault | None) -> float:
        config = self._behaviour
        reviews = config.review_latency if call.role is Role.REVIEW else None
        added = fault.seconds if fault and fault.kind is FaultKind.SLOW else 0.0
        return (reviews or config.latency).of(config.seed, call.asked.question.text) + added


async def _deliver(call: OfflineCall, entry: CallLogEntry, reply: Reply) -> None:
    said_something = reply.ending in (ReplyEnding.COMPLETE, ReplyEnding.RESET_MIDWAY)
    entry.status = reply.status if said_something else None
    await call.send(reply)
    entry.ending = reply.ending


def _arrival(call: OfflineCall) -> Arrival:
    question = call.asked.question
    role = call.role.value if call.asked.purpose is Purpose.GENERATE else call.asked.purpose.value
    return Arrival(
        call.key,
        role,
        question.model,
        item_hint(question.text),
        question.system + question.text,
    )


def _stamped(dialect: OfflineDialect, reply: Reply, stamp: Stamp) -> Reply:
    return replace(reply, headers=(*reply.headers, *dialect.headers(stamp)))


def _aside(call: OfflineCall) -> Reply:
    """Counting and listing meet no fault and no limit."""
    if call.asked.purpose is Purpose.LIST:
        return call.dialect.models()
    return call.dialect.count(call.prompt_tokens)


def _over_quota(over: tuple[Violation, ...], model: str) -> NeutralRefusal:
    """A limit that ends at no known time is not explained."""
    ends = any(one.wait is not None for one in over)
    return NeutralRefusal(Reason.QUOTA if ends else Reason.UNEXPLAINED_QUOTA, violations=over, model=model)


def _answer(call: OfflineCall, fault: Fault | None, now: float) -> NeutralAnswer:
    text = _text(call, fault)
    finish = FINISHES.get(fault.kind, Finish.STOP) if fault else Finish.STOP
    room = len(text) // 2 if finish in HALVED else (call.asked.question.max_tokens or len(text)) * 4
    if room < len(text):
        text, finish = text[:room], finish if finish in HALVED else Finish.MAX_TOKENS
    silent = finish in (Finish.BLOCKED, Finish.SAFETY)
    return NeutralAnswer("" if silent else text, call.prompt_tokens, finish, call.serial, now)


def _text(call: OfflineCall, fault: Fault | None) -> str:
    text = answer_by_rules(call.role, call.asked.question.text)
    if fault and fault.kind is FaultKind.HUGE:
        return MARK
    if fault and fault.kind is FaultKind.HOSTILE:
        spoil = spoil_verdict if call.role is Role.REVIEW else spoil_draft
        return spoil(fault.payload, text)
    return text


def _prompt_tokens(question: NeutralQuestion) -> int:
    return count_tokens(question.system + question.text)
