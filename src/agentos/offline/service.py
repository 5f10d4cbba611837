"""Answers one request to the offline server: checks its key, its limits and the fault script."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from agentos.offline.call_log import Arrival, CallLog, CallLogEntry
from agentos.offline.config import Hints, KeyNames, ServerConfig
from agentos.offline.fault_effects import (
    HUGE_PLACEHOLDER,
    apply_fault,
    corrupt_draft,
    corrupt_verdict,
    refusal_for,
)
from agentos.offline.faults import CallInfo, Fault, FaultKind, FaultScript
from agentos.offline.rate_limits import BucketLimiter, Spending
from agentos.offline.rules.engine import Role, answer_by_rules, item_hint
from agentos.offline.vendors.neutral import (
    Finish,
    Gauge,
    NeutralAnswer,
    NeutralRefusal,
    NeutralRequest,
    OfflineDialect,
    ParsedRequest,
    Purpose,
    Reason,
    Reply,
    ReplyEnding,
    Stamp,
    count_tokens,
)

Send = Callable[[Reply], Awaitable[None]]

FINISHES = {
    FaultKind.BLOCKED: Finish.BLOCKED,
    FaultKind.SAFETY: Finish.SAFETY,
    FaultKind.MAX_TOKENS: Finish.MAX_TOKENS,
    FaultKind.OVERLOADED_STREAM: Finish.OVERLOADED,
}
CUT_IN_HALF = (Finish.MAX_TOKENS, Finish.OVERLOADED)


@dataclass(frozen=True, slots=True)
class OfflineCall:
    dialect: OfflineDialect
    request: ParsedRequest
    key: str
    role: Role
    serial: int
    prompt_tokens: int
    send: Send


class OfflineService:
    """Owns the limiters, the fault script and the call log; lives on one event loop."""

    def __init__(
        self,
        config: ServerConfig,
        key_names: KeyNames,
        call_log: CallLog,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._key_names = key_names
        self._call_log = call_log
        self._clock = clock
        self._limiters: dict[tuple[str, str], BucketLimiter] = {}
        self._serial = 0
        self.script = FaultScript(config.faults)

    async def handle(self, dialect: OfflineDialect, request: NeutralRequest, send: Send) -> None:
        self._serial += 1
        parsed = dialect.read(request)
        if isinstance(parsed, NeutralRefusal):
            reply = dialect.refuse(replace(parsed, serial=self._serial))
            await send(_with_headers(dialect, reply, Stamp(self._serial, self._clock())))
            return
        question = parsed.question
        call = OfflineCall(
            dialect,
            parsed,
            key=self._key_names.name(parsed.secret),
            role=Role.REVIEW if question.wants_json else Role.DRAFT,
            serial=self._serial,
            prompt_tokens=count_tokens(question.system + question.text),
            send=send,
        )
        with self._call_log.record(_arrival(call)) as entry:
            await self._answer(call, entry)

    async def _answer(self, call: OfflineCall, entry: CallLogEntry) -> None:
        refusal = self._key_refusal(call.request)
        if refusal:
            await _send(call, entry, self._refuse(call, refusal, ()))
        elif call.request.purpose is Purpose.GENERATE:
            await self._generate(call, entry)
        else:
            # Counting tokens and listing models have no faults and no limits.
            listing = call.request.purpose is Purpose.LIST
            reply = call.dialect.models() if listing else call.dialect.count(call.prompt_tokens)
            await _send(call, entry, self._stamp(call, reply, ()))

    def _key_refusal(self, request: ParsedRequest) -> NeutralRefusal | None:
        if not request.secret:
            return NeutralRefusal(Reason.KEY_MISSING)
        if self._config.any_key or self._key_names.knows(request.secret):
            return None
        return NeutralRefusal(Reason.KEY_INVALID)

    async def _generate(self, call: OfflineCall, entry: CallLogEntry) -> None:
        fault = self.script.next_fault(CallInfo(call.key, call.role, call.request.question.text))
        entry.fault = fault.kind if fault else None
        limiter = self._limiter(call)
        refusal = (fault and refusal_for(fault, call.request)) or self._limit_refusal(call, limiter)
        if refusal:
            await _send(call, entry, self._refuse(call, refusal, self._gauges(limiter)))
            return
        with limiter.running():
            await asyncio.sleep(self._delay(call, fault))
            await _send(call, entry, self._reply(call, fault, limiter))

    def _limiter(self, call: OfflineCall) -> BucketLimiter:
        bucket = self._config.bucket_of(call.key)
        limiter_key = (bucket.bucket, call.request.question.model if self._config.per_model else "")
        if limiter_key not in self._limiters:
            self._limiters[limiter_key] = BucketLimiter(bucket.limits)
        return self._limiters[limiter_key]

    def _limit_refusal(self, call: OfflineCall, limiter: BucketLimiter) -> NeutralRefusal | None:
        question = call.request.question
        exceeded = limiter.admit(self._clock(), Spending(call.prompt_tokens, question.reserved))
        if not exceeded:
            return None
        if self._config.hints is Hints.NONE:
            return NeutralRefusal(Reason.UNEXPLAINED_QUOTA)
        # A refusal explains only limits that end at a known time.
        explained = any(violation.wait is not None for violation in exceeded)
        reason = Reason.QUOTA if explained else Reason.UNEXPLAINED_QUOTA
        return NeutralRefusal(reason, violations=exceeded, model=question.model)

    def _gauges(self, limiter: BucketLimiter) -> tuple[Gauge, ...]:
        return () if self._config.hints is Hints.NONE else limiter.gauges(self._clock())

    def _refuse(self, call: OfflineCall, refusal: NeutralRefusal, gauges: tuple[Gauge, ...]) -> Reply:
        return self._stamp(call, call.dialect.refuse(replace(refusal, serial=call.serial)), gauges)

    def _reply(self, call: OfflineCall, fault: Fault | None, limiter: BucketLimiter) -> Reply:
        answer = _make_answer(call, fault, self._clock())
        limiter.add_output(answer.now, count_tokens(answer.text) - call.request.question.reserved)
        reply = self._stamp(call, call.dialect.answer(call.request, answer), self._gauges(limiter))
        return apply_fault(fault, reply) if fault else reply

    def _stamp(self, call: OfflineCall, reply: Reply, gauges: tuple[Gauge, ...]) -> Reply:
        return _with_headers(call.dialect, reply, Stamp(call.serial, self._clock(), gauges))

    def _delay(self, call: OfflineCall, fault: Fault | None) -> float:
        config = self._config
        latency = config.latency
        if call.role is Role.REVIEW and config.review_latency:
            latency = config.review_latency
        added = fault.seconds if fault and fault.kind is FaultKind.SLOW else 0.0
        return latency.of(config.seed, call.request.question.text) + added


async def _send(call: OfflineCall, entry: CallLogEntry, reply: Reply) -> None:
    sends_status = reply.ending in (ReplyEnding.COMPLETE, ReplyEnding.RESET_MIDWAY)
    entry.status = reply.status if sends_status else None
    await call.send(reply)
    entry.ending = reply.ending


def _arrival(call: OfflineCall) -> Arrival:
    question, purpose = call.request.question, call.request.purpose
    role = call.role.value if purpose is Purpose.GENERATE else purpose.value
    return Arrival(
        call.key,
        role,
        question.model,
        item_hint(question.text),
        question.system + question.text,
    )


def _with_headers(dialect: OfflineDialect, reply: Reply, stamp: Stamp) -> Reply:
    return replace(reply, headers=(*reply.headers, *dialect.headers(stamp)))


def _make_answer(call: OfflineCall, fault: Fault | None, now: float) -> NeutralAnswer:
    text = _text(call, fault)
    finish = FINISHES.get(fault.kind, Finish.STOP) if fault else Finish.STOP
    max_size = (call.request.question.max_tokens or len(text)) * 4
    if finish in CUT_IN_HALF:
        text = text[: len(text) // 2]
    elif max_size < len(text):
        text, finish = text[:max_size], Finish.MAX_TOKENS
    is_empty = finish in (Finish.BLOCKED, Finish.SAFETY)
    return NeutralAnswer("" if is_empty else text, call.prompt_tokens, finish, call.serial, now)


def _text(call: OfflineCall, fault: Fault | None) -> str:
    question = call.request.question
    text = answer_by_rules(call.role, question.text, question.schema)
    if fault and fault.kind is FaultKind.HUGE:
        return HUGE_PLACEHOLDER
    if fault and fault.kind is FaultKind.HOSTILE:
        corrupt = corrupt_verdict if call.role is Role.REVIEW else corrupt_draft
        return corrupt(fault.payload, text)
    return text
