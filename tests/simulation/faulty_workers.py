"""Simulated workers that crash, hang, fail transiently, or work; answered calls survive them."""

from dataclasses import dataclass, field
from random import Random

from agentos.core.forecast.discrete_events import ScheduledEvent
from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    Command,
    FreezeWorker,
    GrantLease,
    KillWorker,
    StartWorker,
    StopWorker,
    ThawWorker,
)
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed, failed_transient
from agentos.core.ratelimit.refusals import Refusal

from .provider import Provider

APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


@dataclass(slots=True)
class Disk:
    """What outlives a worker and a run: the answered calls and finished documents that were reported."""

    calls: dict[str, int] = field(default_factory=dict)
    documents: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The probability of each fault whenever it could happen."""

    crash: float = 0.0
    hang: float = 0.0
    no_start: float = 0.0
    transient_failure: float = 0.0
    invalid: float = 0.0


class FaultyWorkers:
    """Every item needs `needed` answers; each answer is kept, so that another attempt continues from it."""

    def __init__(
        self, random: Random, provider: Provider, disk: Disk, fault_rates: FaultRates, needed: int
    ) -> None:
        self._random = random
        self._provider = provider
        self._disk = disk
        self._fault_rates = fault_rates
        self._needed = needed
        self._alive: set[str] = set()
        self.buckets: dict[str, str] = {}

    def execute(self, command: Command, now: float) -> list[ScheduledEvent]:
        match command:
            case StartWorker():
                return self._start(command.item, now)
            case GrantLease():
                return self._call(command, now)
            case StopWorker():
                return self._stop(command.item, now)
            case KillWorker():
                return [ScheduledEvent(now + 0.01, events.WorkerExited(command.item, "SIGKILL", clean=False))]
            case FreezeWorker() | ThawWorker():
                return []

    def _start(self, item: str, now: float) -> list[ScheduledEvent]:
        if self._happens(self._fault_rates.no_start):
            return [ScheduledEvent(now + 0.01, events.WorkerStartFailed(item, "EAGAIN"))]
        self._alive.add(item)
        started_at = now + self._random.uniform(0.01, 1.0)
        started = ScheduledEvent(started_at, events.WorkerStarted(item, 1))
        if self._happens(self._fault_rates.invalid):
            return [started, *self._end(item, started_at, failed("Invalid spec format"))]
        return [started, *self._continue(item, started_at, self._disk.calls.get(item, 0))]

    def _continue(self, item: str, now: float, done: int) -> list[ScheduledEvent]:
        at = now + self._random.uniform(0.0, 0.5)
        if self._happens(self._fault_rates.crash):
            return [ScheduledEvent(at, events.WorkerExited(item, "SIGSEGV", clean=False))]
        if self._happens(self._fault_rates.hang):
            return []
        if self._happens(self._fault_rates.transient_failure):
            return self._end(item, at, failed_transient("OSError: no space left"))
        if done >= self._needed:
            return self._end(item, at, APPROVED)
        node = ScheduledEvent(at, events.NodeStarted(item, f"N{done}", 1))
        request = events.LeaseRequested(item, f"call-{done}", ("gemini",), ("m",), 100, 100, done)
        return [node, ScheduledEvent(at, request)]

    def _call(self, grant: GrantLease, now: float) -> list[ScheduledEvent]:
        item = grant.item
        answer = self._provider.answer(grant.key, self.buckets[grant.key], now)
        end = now + answer.seconds
        if self._happens(self._fault_rates.crash):
            return [
                ScheduledEvent(now + answer.seconds / 2, events.WorkerExited(item, "SIGKILL", clean=False))
            ]
        if self._happens(self._fault_rates.hang):
            return []
        done = self._disk.calls.get(item, 0) + (answer.refusal is None)
        released = self._released(grant, answer.seconds, answer.refusal)
        return [ScheduledEvent(end, released), *self._continue(item, end, done)]

    def _released(self, grant: GrantLease, seconds: float, refusal: Refusal | None) -> events.LeaseReleased:
        usage = Usage() if refusal else Usage(1, 100, 100)
        return events.LeaseReleased(grant.item, grant.lease, seconds, usage, refusal, "m")

    def _stop(self, item: str, now: float) -> list[ScheduledEvent]:
        if item not in self._alive or self._happens(0.1):
            return []
        return self._end(item, now + self._random.uniform(0.0, 3.0), Outcome(Ending.INTERRUPTED))

    def _end(self, item: str, at: float, outcome: Outcome) -> list[ScheduledEvent]:
        exit_delay = self._random.choice((0.01, 0.01, 0.01, 30.0))
        return [
            ScheduledEvent(at, events.WorkerReported(item, outcome)),
            ScheduledEvent(at + exit_delay, events.WorkerExited(item, "exit status 0", clean=True)),
        ]

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability
