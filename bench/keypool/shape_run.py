"""The pool against one shape of limits on a clock that is moved, next to a sender that knows the limits.

python -m bench.keypool.shape_run [--shape NAME ...] [--random N] [--seeds N] [--busy]
"""

import argparse
import heapq
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from bench.keypool.limiters import Provider
from bench.keypool.shapes import NAMES, Hint, Shape, random_shape, shape_named

START = 60.0 * 1_000_000
NETWORK_DELAY = (0.0005, 0.002)  # seconds, each way
BUSY_DELAY = (0.0005, 0.04)  # the same on a busy machine: calls overtake one another
CALLS_OF_AN_ITEM = 4
OUTPUT_TOKENS = 1
TIME_LIMIT = 20_000.0  # seconds
MODEL = "model"
HEAD = f"{'shape':<22} {'limits':<8} {'form':<6} efficiency  seconds  refused"
Happening = events.LeaseRequested | events.LeaseReleased | Lease | None


@dataclass(frozen=True, slots=True)
class Result:
    shape: str
    told: bool
    long: bool
    efficiency: float
    seconds: float
    calls: int
    refused: int

    @property
    def refused_share(self) -> float:
        return self.refused / self.calls

    def line(self) -> str:
        limits, form = "known" if self.told else "unknown", "long" if self.long else "short"
        return (
            f"{self.shape:<22} {limits:<8} {form:<6} {self.efficiency:>10.3f} {self.seconds:>8.1f} "
            f"{self.refused_share:>8.1%}"
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens and latency of every call, the same for the pool and for the omniscient sender."""

    tokens: tuple[int, ...]
    latency: tuple[float, ...]

    @classmethod
    def of(cls, shape: Shape, calls: int, seed: int) -> "Load":
        dice = random.Random(seed)
        return cls(
            tuple(dice.randint(*shape.tokens) for _ in range(calls)),
            tuple(_latency(shape, dice) for _ in range(calls)),
        )


def _latency(shape: Shape, dice: random.Random) -> float:
    low, high = shape.latency
    return low + (high - low) * (dice.random() ** 3 if shape.heavy_tail else dice.random())


def run(shape: Shape, *, told: bool = False, long: bool = False, seed: int = 1, busy: bool = False) -> Result:
    calls = shape.calls(long=long)
    load = Load.of(shape, calls, seed)
    best = best_seconds(shape, load)
    simulation = Simulation(shape, load, seed, told=told, long=long)
    simulation.delay = BUSY_DELAY if busy else NETWORK_DELAY
    return simulation.run(best)


def best_seconds(shape: Shape, load: Load) -> float:
    """Every call goes, in order, to the first quota that admits it, at the first moment that one does."""
    quotas = [provider(shape, place) for place in range(len(shape.quotas))]
    now, free = START, [START] * shape.callers
    for tokens, latency in zip(load.tokens, load.latency, strict=True):
        now = max(now, heapq.heappop(free))
        while True:
            waits = [(quota.wait(now, tokens), place) for place, quota in enumerate(quotas)]
            wait, place = min(waits)
            if wait == 0:
                break
            now += max(wait, 1e-9)
        quotas[place].admit(now, tokens, now + latency)
        heapq.heappush(free, now + latency)
    return max(free) - START


def provider(shape: Shape, place: int) -> Provider:
    return Provider(shape.quotas[place], shape.concurrency, shape.changes, START)


@dataclass(slots=True)
class _Caller:
    item: str = ""
    calls: int = 0
    call: int = 0


class Simulation:
    """A simulated provider and its callers, with the real pool between them."""

    def __init__(self, shape: Shape, load: Load, seed: int, *, told: bool, long: bool) -> None:
        self.delay = NETWORK_DELAY
        self._shape, self._load, self._told, self._long = shape, load, told, long
        self._dice = random.Random(seed + 1000)
        self._quotas = [provider(shape, place) for place in range(len(shape.quotas))]
        self.pool = Pool(_credentials(shape, told=told))
        self.manager = LeaseManager(self.pool, self._dice.random, Budget(PriceList()))
        self._callers = [_Caller() for _ in range(shape.callers)]
        self._calls = iter(range(len(load.tokens)))
        self._agenda: list[tuple[float, int, Happening]] = []
        self._order = count()
        self._wake: float | None = None
        self.refused = 0
        self.served = 0
        self.news: list[events.SchedulerEvent] = []

    def run(self, best: float) -> Result:
        last = now = START
        for number in range(len(self._callers)):
            self._next_call(number, now)
        while self._agenda and now < START + TIME_LIMIT:
            now, _, event = heapq.heappop(self._agenda)
            if event is None and now != self._wake:
                continue
            if isinstance(event, Lease):
                self._arrive(event, now)
                continue
            if isinstance(event, events.LeaseReleased) and event.refusal is None:
                last = now
            self._decide(event, now)
        if self.served < len(self._load.tokens):
            last = START + TIME_LIMIT
        calls = len(self._load.tokens)
        seconds = last - START
        return Result(self._shape.name, self._told, self._long, best / seconds, seconds, calls, self.refused)

    def _decide(self, event: Happening, now: float) -> None:
        match event:
            case events.LeaseRequested():
                self.manager.request(event, now)
            case events.LeaseReleased():
                self.news += self.manager.release(event, now)
                self._after(event, now)
        for lease in self.manager.grants(now):
            self._plan(now + self._dice.uniform(*self.delay), lease)
        self.manager.drain_notes()
        at = self.manager.wake_at(now)
        self._wake = None if at is None else max(at, now + 1e-6)
        if self._wake is not None:
            self._plan(self._wake, None)

    def _after(self, event: events.LeaseReleased, now: float) -> None:
        number = int(event.item.partition("-")[0])
        if event.refusal is None:
            self.served += 1
            self._callers[number].calls += 1
            self._next_call(number, now)
        else:
            self._plan(now, self._request(number))

    def _next_call(self, number: int, now: float) -> None:
        caller, call = self._callers[number], next(self._calls, None)
        if call is None:
            return
        if not caller.item or caller.calls == CALLS_OF_AN_ITEM:
            caller.item, caller.calls = f"{number}-{call}", 0
        caller.call = call
        self._plan(now, self._request(number))

    def _request(self, number: int) -> events.LeaseRequested:
        caller = self._callers[number]
        tokens = self._load.tokens[caller.call]
        return events.LeaseRequested(
            item=caller.item,
            call=str(caller.call),
            providers=("gemini",),
            models=(MODEL,),
            input_tokens=tokens - OUTPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            calls_done=caller.calls,
        )

    def _arrive(self, lease: Lease, now: float) -> None:
        shape, call = self._shape, int(lease.request.call)
        tokens = self._load.tokens[call]
        quota = self._quotas[shape.keys[int(lease.credential.name.partition("-")[2]) - 1]]
        ends, refusal, usage = now, None, Usage()
        if quota.wait(now, tokens):
            self.refused += 1
            refusal = Refusal(RefusalKind.RATE_LIMITED, "429", self._hint(quota.hint(now, tokens)))
        else:
            ends += self._load.latency[call]
            usage = Usage(1, tokens - OUTPUT_TOKENS, OUTPUT_TOKENS)
            quota.admit(now, tokens, ends)
        ends += self._dice.uniform(*self.delay)
        took = ends - lease.granted_at
        self._plan(ends, events.LeaseReleased(lease.request.holder, lease.id, took, usage, refusal, MODEL))

    def _hint(self, wait: float) -> float | None:
        if not wait:
            return self._shape.concurrency_hint
        match self._shape.hint:
            case Hint.EXACT:
                return wait
            case Hint.SECONDS:
                return float(int(wait) + 1)
            case Hint.NONE:
                return None

    def _plan(self, at: float, event: Happening) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), event))


def _credentials(shape: Shape, *, told: bool) -> Iterator[Credential]:
    for number, place in enumerate(shape.keys):
        rates = tuple(
            (Dimension.TOKENS if limit.tokens else Dimension.REQUESTS, Rate(limit.amount, limit.seconds))
            for limit in shape.quotas[place]
        )
        slots = shape.concurrency if told and shape.concurrency else shape.slots
        yield Credential(
            name=f"key-{number + 1}",
            provider="gemini",
            secret=Secret(f"secret-{number}-of-a-key"),
            model=MODEL,
            bucket=f"quota-{place}" if told and len(set(shape.keys)) < len(shape.keys) else "",
            concurrency=slots,
            rates=rates if told else (),
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="also N random shapes")
    parser.add_argument("--first", type=int, default=1, help="seed of the first random shape")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--busy", action="store_true", help="calls take up to 40 ms on the way, as on a busy machine"
    )
    parser.add_argument("--no-table", action="store_true")
    given = parser.parse_args()
    print(HEAD)
    seeds = range(1, given.seeds + 1)
    for shape in () if given.no_table else map(shape_named, given.shape):
        for told, long in ((False, False), (False, True), (True, True)):
            if told and (shape.changes or not (shape.quotas[0] or shape.concurrency)):
                continue
            _print(run(shape, told=told, long=long, seed=seed, busy=given.busy) for seed in seeds)
    for seed in range(given.first, given.first + given.random):
        _print([run(random_shape(seed), long=True, seed=seed, busy=given.busy)])


def _print(results: Iterable[Result]) -> None:
    for result in results:
        print(result.line(), flush=True, file=sys.stdout)


if __name__ == "__main__":
    main()
