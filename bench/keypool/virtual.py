"""The scenarios on a virtual clock: what the pool itself achieves, without the noise of a machine.

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
from bench.keypool.harness import LimitKnowledge, jain
from bench.keypool.job import Job, JobKey
from bench.keypool.physical import ANSWER_TOKENS, MINUTES, best_seconds
from bench.keypool.scenarios import NAMES, Scenario, scenario_named

MODEL = "offline-rules-1"
CALLS_OF_AN_ITEM = 4
NETWORK_DELAY = (0.0005, 0.002)  # seconds, each way
MAX_SECONDS = 100_000.0  # of virtual time
SimulationEvent = events.LeaseRequested | events.LeaseReleased | Lease | None


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The figures of one simulated scenario."""

    scenario: str
    knowledge: LimitKnowledge
    efficiency: float
    seconds: float
    refused: int
    wasted: int
    fairness: float
    early: int

    def line(self) -> str:
        return (
            f"{self.scenario:<15} {self.knowledge:<8} {self.efficiency:>10.3f} {self.seconds:>8.2f} "
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
class PoolSimulation:
    """One scenario: its server, and the callers of one or more processes that share its keys."""

    scenario: Scenario
    knowledge: LimitKnowledge
    seed: int = 1
    refused: int = 0
    wasted: int = 0
    early: int = 0
    _retry_times: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._server = [BucketLimiter(limits) for limits in self.scenario.limits]
        processes = self.scenario.processes
        self._pools = [Pool(_credentials(self)) for _ in range(processes)]
        self._lease_managers = [
            LeaseManager(pool, self._random.random, Budget(PriceList())) for pool in self._pools
        ]
        self._numbers = [iter(range(self.scenario.calls // processes)) for _ in range(processes)]
        self._callers = [_Caller(number % processes) for number in range(self.scenario.callers)]
        self._schedule: list[tuple[float, int, int, SimulationEvent]] = []
        self._finished_calls: list[tuple[float, int]] = []
        self._task_line = count()
        self._wake_times: list[float | None] = [None] * processes
        self._job = _job(self.scenario)

    def run(self) -> SimulationResult:
        began = now = MINUTES + (self.scenario.phase or 0.0)
        last = now
        for number in range(len(self._callers)):
            self._next_call(number, now)
        while self._schedule and now < began + MAX_SECONDS:
            now, _, process, event = heapq.heappop(self._schedule)
            if event is None and now != self._wake_times[process]:
                continue
            if isinstance(event, Lease):
                self._serve(process, event, now)
                continue
            if isinstance(event, events.LeaseReleased) and event.refusal is None:
                last = now
            self._step(process, event, now)
        done = sum(caller.served for caller in self._callers)
        best = best_seconds(self.scenario, self._job, done)
        seconds = last - began
        shares = [caller.served for caller in self._callers]
        return SimulationResult(
            self.scenario.name,
            self.knowledge,
            best / seconds,
            seconds,
            self.refused,
            self.wasted,
            jain(shares),
            self.early,
        )

    def _step(self, process: int, event: SimulationEvent, now: float) -> None:
        context = self._lease_managers[process]
        match event:
            case events.LeaseRequested():
                context.request(event, now)
            case events.LeaseReleased():
                context.release(event, now)
                self._handle_release(event, now)
        for lease in context.grants(now):
            self._send(process, lease, now)
        notes = context.drain_notes()
        for number, pool in enumerate(self._pools):
            for note in notes if number != process else ():
                pool.apply_note(replace(note, run=f"process-{process}"))
        at = context.wake_at(now)
        self._wake_times[process] = None if at is None else max(at, now + 1e-6)
        if at is not None:
            self._push(max(at, now + 1e-6), process, None)

    def _handle_release(self, event: events.LeaseReleased, now: float) -> None:
        number = int(event.item.partition("-")[0])
        caller = self._callers[number]
        if event.refusal is None:
            caller.served += 1
            caller.calls += 1
            caller.usual = event.usage.output_tokens
            self._next_call(number, now)
        else:
            self._push(now, caller.process, self._lease_request(number))

    def _next_call(self, number: int, now: float) -> None:
        caller = self._callers[number]
        call = next(self._numbers[caller.process], None)
        if call is None:
            return
        if not caller.item or caller.calls == CALLS_OF_AN_ITEM:
            if caller.item:
                self._lease_managers[caller.process].drop_holder(caller.item)
            caller.item, caller.calls, caller.usual = f"{number}-{call}", 0, 0
        caller.call = call
        self._push(now, caller.process, self._lease_request(number))

    def _lease_request(self, number: int) -> events.LeaseRequested:
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
        known, until = self._retry_times.get(lease.credential.name, (now, now))
        self.early += known <= now < until
        self._push(now + self._random.uniform(*NETWORK_DELAY), process, lease)

    def _serve(self, process: int, lease: Lease, now: float) -> None:
        index = int(lease.credential.name.partition("-")[2]) - 1
        ends = now + self._random.uniform(*NETWORK_DELAY)
        refusal, usage = self._refusal(index, lease, now), Usage()
        if refusal is None:
            tokens = count_tokens(self._job.prompt(int(lease.request.call)))
            usage, ends = Usage(1, tokens, ANSWER_TOKENS), ends + self.scenario.latency
            heapq.heappush(self._finished_calls, (now + self.scenario.latency, index))
        elif refusal.kind is RefusalKind.RATE_LIMITED:
            self._retry_times[lease.credential.name] = (ends, now + (refusal.seconds or 0.0))
        took = ends - lease.granted_at
        self._push(
            ends, process, events.LeaseReleased(lease.request.holder, lease.id, took, usage, refusal, MODEL)
        )

    def _refusal(self, index: int, lease: Lease, at: float) -> Refusal | None:
        while self._finished_calls and self._finished_calls[0][0] <= at:
            when, key = heapq.heappop(self._finished_calls)
            self._server[key].add_output(when, ANSWER_TOKENS)
        match self.scenario.dead.get(index):
            case "403":
                self.wasted += 1
                return Refusal(RefusalKind.KEY_REJECTED, "403")
            case "429-day":
                self.wasted += 1
                return Refusal(RefusalKind.DAY_EXHAUSTED, "day", 20.0, 40_000.0)
        tokens = count_tokens(self._job.prompt(int(lease.request.call)))
        over = self._server[index].admit(at, Spending(tokens))
        if not over:
            return None
        self.refused += 1
        wait = max(one.wait or 0.0 for one in over)
        limits = tuple(_named_limit(one, self.scenario) for one in over) if self.scenario.names_limits else ()
        return Refusal(RefusalKind.RATE_LIMITED, "429", wait, limits=limits)

    def _push(self, at: float, process: int, event: SimulationEvent) -> None:
        heapq.heappush(self._schedule, (at, next(self._task_line), process, event))


def _named_limit(over: Violation, scenario: Scenario) -> LimitSeen:
    dimension = {Quota.REQUESTS: Dimension.REQUESTS, Quota.TOKENS: Dimension.TOKENS}[over.quota]
    return LimitSeen(dimension, over.limit or 0, scenario.limits[0].seconds)


def _credentials(simulation: PoolSimulation) -> Iterator[Credential]:
    for index, limits in enumerate(simulation.scenario.limits):
        rates = []
        if simulation.knowledge is LimitKnowledge.KNOWN and limits.rate:
            rates.append((Dimension.REQUESTS, Rate(limits.rate, limits.seconds)))
        if simulation.knowledge is LimitKnowledge.KNOWN and limits.tokens:
            rates.append((Dimension.TOKENS, Rate(limits.tokens, limits.seconds)))
        yield Credential(
            name=f"key-{index + 1}",
            provider="gemini",
            secret=Secret(f"secret-{index}-of-a-key"),
            model=MODEL,
            concurrency=simulation.scenario.concurrency,
            rates=tuple(rates),
        )


def _job(scenario: Scenario) -> Job:
    keys = tuple(JobKey(f"key-{index}", "") for index in range(len(scenario.limits)))
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
        for knowledge in LimitKnowledge:
            for seed in range(given.seeds):
                print(PoolSimulation(scenario_named(name), knowledge, seed + 1).run().line(), flush=True)


if __name__ == "__main__":
    main()
