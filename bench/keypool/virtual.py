"""The scenarios on a clock that is moved: what the pool itself can do, without the noise of a machine.

python -m bench.keypool.virtual [--scenario NAME ...]
"""

import argparse
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, LimitSeen, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.offline.rate_limits import BucketLimiter, Spending
from agentos.offline.vendors.neutral import Quota, Violation, count_tokens
from bench.keypool.harness import Telling, jain
from bench.keypool.job import Job, JobKey
from bench.keypool.physical import ANSWER_TOKENS, MINUTES, best_seconds
from bench.keypool.scenarios import NAMES, Scenario, scenario_named

MODEL = "offline-rules-1"
CALLS_OF_AN_ITEM = 4
ON_THE_WAY = (0.0005, 0.002)
LONGEST = 100_000.0
Happening = events.LeaseRequested | events.LeaseReleased | Lease | None


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one scenario."""

    scenario: str
    telling: Telling
    efficiency: float
    seconds: float
    refused: int
    wasted: int
    fairness: float
    early: int

    def line(self) -> str:
        return (
            f"{self.scenario:<15} {self.telling:<8} {self.efficiency:>10.3f} {self.seconds:>8.2f} "
            f"{self.refused:>8} {self.wasted:>7} {self.fairness:>9.3f} {self.early:>6}"
        )


HEAD = "scenario        limits   efficiency  seconds  refused  wasted  fairness  early"


@dataclass(slots=True)
class _Caller:
    process: int
    served: int = 0
    item: str = ""
    calls: int = 0
    usual: int = 0
    call: int = 0


@dataclass
class World:
    """One scenario's server, and the callers of so many processes that share its keys."""

    scenario: Scenario
    telling: Telling
    seed: int = 1
    refused: int = 0
    wasted: int = 0
    early: int = 0
    _promised: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._server = [BucketLimiter(limits) for limits in self.scenario.limits]
        processes = self.scenario.processes
        self._pools = [Pool(_credentials(self)) for _ in range(processes)]
        self._desks = [LeaseManager(pool, self._dice.random, Budget(PriceList())) for pool in self._pools]
        self._numbers = [iter(range(self.scenario.calls // processes)) for _ in range(processes)]
        self._callers = [_Caller(number % processes) for number in range(self.scenario.callers)]
        self._agenda: list[tuple[float, int, int, Happening]] = []
        self._written: list[tuple[float, int]] = []
        self._order = count()
        self._wakes: list[float | None] = [None] * processes
        self._job = _job(self.scenario)

    def run(self) -> Told:
        began = now = MINUTES + (self.scenario.phase or 0.0)
        last = now
        for number in range(len(self._callers)):
            self._next_call(number, now)
        while self._agenda and now < began + LONGEST:
            now, _, process, event = heapq.heappop(self._agenda)
            if event is None and now != self._wakes[process]:
                continue
            if isinstance(event, Lease):
                self._arrive(process, event, now)
                continue
            if isinstance(event, events.LeaseReleased) and event.refusal is None:
                last = now
            self._decide(process, event, now)
        done = sum(caller.served for caller in self._callers)
        best = best_seconds(self.scenario, self._job, done)
        seconds = last - began
        shares = [caller.served for caller in self._callers]
        return Told(
            self.scenario.name,
            self.telling,
            best / seconds,
            seconds,
            self.refused,
            self.wasted,
            jain(shares),
            self.early,
        )

    def _decide(self, process: int, event: Happening, now: float) -> None:
        context = self._desks[process]
        match event:
            case events.LeaseRequested():
                context.request(event, now)
            case events.LeaseReleased():
                context.release(event, now)
                self._after(event, now)
        for lease in context.grants(now):
            self._send(process, lease, now)
        notes = context.drain_notes()
        for number, pool in enumerate(self._pools):
            for note in notes if number != process else ():
                pool.apply_note(replace(note, run=f"process-{process}"))
        at = context.wake_at(now)
        self._wakes[process] = None if at is None else max(at, now + 1e-6)
        if at is not None:
            self._plan(max(at, now + 1e-6), process, None)

    def _after(self, event: events.LeaseReleased, now: float) -> None:
        number = int(event.item.partition("-")[0])
        caller = self._callers[number]
        if event.refusal is None:
            caller.served += 1
            caller.calls += 1
            caller.usual = event.usage.output_tokens
            self._next_call(number, now)
        else:
            self._plan(now, caller.process, self._wish(number))

    def _next_call(self, number: int, now: float) -> None:
        caller = self._callers[number]
        call = next(self._numbers[caller.process], None)
        if call is None:
            return
        if not caller.item or caller.calls == CALLS_OF_AN_ITEM:
            if caller.item:
                self._desks[caller.process].drop_holder(caller.item)
            caller.item, caller.calls, caller.usual = f"{number}-{call}", 0, 0
        caller.call = call
        self._plan(now, caller.process, self._wish(number))

    def _wish(self, number: int) -> events.LeaseRequested:
        caller = self._callers[number]
        return events.LeaseRequested(
            item=caller.item,
            call=str(caller.call),
            providers=("gemini",),
            models=(MODEL,),
            input_tokens=len(self._job.prompt(caller.call)) // 4,
            output_tokens=caller.usual,
            calls_done=caller.calls,
        )

    def _send(self, process: int, lease: Lease, now: float) -> None:
        known, until = self._promised.get(lease.credential.name, (now, now))
        self.early += known <= now < until
        self._plan(now + self._dice.uniform(*ON_THE_WAY), process, lease)

    def _arrive(self, process: int, lease: Lease, now: float) -> None:
        place = int(lease.credential.name.partition("-")[2]) - 1
        ends = now + self._dice.uniform(*ON_THE_WAY)
        refusal, usage = self._refusal(place, lease, now), Usage()
        if refusal is None:
            tokens = count_tokens(self._job.prompt(int(lease.request.call)))
            usage, ends = Usage(1, tokens, ANSWER_TOKENS), ends + self.scenario.latency
            heapq.heappush(self._written, (now + self.scenario.latency, place))
        elif refusal.kind is RefusalKind.RATE_LIMITED:
            self._promised[lease.credential.name] = (ends, now + (refusal.seconds or 0.0))
        took = ends - lease.granted_at
        self._plan(
            ends, process, events.LeaseReleased(lease.request.holder, lease.id, took, usage, refusal, MODEL)
        )

    def _refusal(self, place: int, lease: Lease, at: float) -> Refusal | None:
        while self._written and self._written[0][0] <= at:
            when, key = heapq.heappop(self._written)
            self._server[key].add_output(when, ANSWER_TOKENS)
        match self.scenario.dead.get(place):
            case "403":
                self.wasted += 1
                return Refusal(RefusalKind.KEY_REJECTED, "403")
            case "429-day":
                self.wasted += 1
                return Refusal(RefusalKind.DAY_EXHAUSTED, "day", 20.0, 40_000.0)
        tokens = count_tokens(self._job.prompt(int(lease.request.call)))
        over = self._server[place].admit(at, Spending(tokens))
        if not over:
            return None
        self.refused += 1
        wait = max(one.wait or 0.0 for one in over)
        limits = tuple(_seen(one, self.scenario) for one in over) if self.scenario.names_limits else ()
        return Refusal(RefusalKind.RATE_LIMITED, "429", wait, limits=limits)

    def _plan(self, at: float, process: int, event: Happening) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), process, event))


def _seen(over: Violation, scenario: Scenario) -> LimitSeen:
    dimension = {Quota.REQUESTS: Dimension.REQUESTS, Quota.TOKENS: Dimension.TOKENS}[over.quota]
    return LimitSeen(dimension, over.limit or 0, scenario.limits[0].seconds)


def _credentials(world: World) -> Iterator[Credential]:
    for place, limits in enumerate(world.scenario.limits):
        rates = []
        if world.telling is Telling.KNOWN and limits.rate:
            rates.append((Dimension.REQUESTS, Rate(limits.rate, limits.seconds)))
        if world.telling is Telling.KNOWN and limits.tokens:
            rates.append((Dimension.TOKENS, Rate(limits.tokens, limits.seconds)))
        yield Credential(
            name=f"key-{place + 1}",
            provider="gemini",
            secret=Secret(f"secret-{place}-of-a-key"),
            model=MODEL,
            concurrency=world.scenario.concurrency,
            rates=tuple(rates),
        )


def _job(scenario: Scenario) -> Job:
    keys = tuple(JobKey(f"key-{place}", "") for place in range(len(scenario.limits)))
    calls = scenario.calls // scenario.processes
    return Job(
        "",
        keys,
        calls,
        scenario.callers,
        scenario.characters,
        1,
        0.0,
        names_limits=False,
        folder="",
        process=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenario", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    print(HEAD)
    for name in given.scenario:
        for telling in Telling:
            for seed in range(given.seeds):
                print(World(scenario_named(name), telling, seed + 1).run().line(), flush=True)


if __name__ == "__main__":
    main()
