"""One imagined run, from its first item to its last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from agentos.core.constants import DAY
from agentos.core.forecast.discrete_events import EventSimulator, Seen
from agentos.core.forecast.history import ItemTrace, RunHistory
from agentos.core.forecast.replay_workers import ReplayWorkers
from agentos.core.planning.plan import PlanEntry
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned, Note
from agentos.core.protocol.results import Ending, Usage
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, LimitSeen, Rate
from agentos.core.ratelimit.rate_estimator import RateEstimator
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.scheduler import Scheduler

MOST_ITEMS = 600
SAMPLE = 150
MAX_SIMULATED = 3 * DAY
NOTICEABLE = 0.05


class WaitCause(StrEnum):
    """What calls wait for."""

    SLOTS = "key slots"
    PACE = "pace"
    COOLDOWN = "rest"


@dataclass(frozen=True, slots=True)
class SimulationInputs:
    """All that a run would find: items, keys with what is known of them, limits, the time."""

    entries: tuple[PlanEntry, ...]
    credentials: tuple[Credential, ...]
    notes: tuple[Note, ...]
    limits: Limits
    now: float


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What holds the run up most, and which share of the workers' time is spent waiting for it."""

    what: str
    share: float
    amount: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Without an exit code it was not over after the longest time that is looked at."""

    seconds: float | None
    usage: Usage
    cost: float | None
    ended: int
    exit_code: int | None
    bottleneck: Bottleneck | None


class RunSimulation:
    """One imagined run; of very many items it tries the first, and takes the rest to be like them."""

    def __init__(self, inputs: SimulationInputs, experience: RunHistory, draw: int = 0) -> None:
        """`draw` says which of the ways to deal the lives out to the items is taken."""
        self._inputs = inputs
        self._traces = _cast(inputs.entries, experience.traces, draw)
        count = len(inputs.entries)
        self._tried = count if count <= MOST_ITEMS else SAMPLE
        self._pool = _pool(inputs)
        ids = tuple(entry.item.id for entry in inputs.entries[: self._tried])
        run = Scheduler(ids, self._pool, inputs.limits, lambda: 0.5, inputs.now)
        crew = ReplayWorkers(dict(zip(ids, self._traces, strict=False)), experience.warm_up)
        self._simulator = EventSimulator(run, crew, inputs.now, self._see)
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._ends: list[float] = []
        self._finished = 0
        self._exit_code = 0
        self._waits_by_cause = dict.fromkeys(WaitCause, 0.0)

    def run(self) -> SimulationResult:
        world = self._simulator
        world.begin()
        while not world.scheduler.over and world.now < self._inputs.now + MAX_SIMULATED:
            waiting, before = len(self._pool.waiting(world.now)), world.now
            holdup = self._wait_cause(before) if waiting else None
            world.step()
            if holdup:
                self._waits_by_cause[holdup] += waiting * (world.now - before)
        seconds = world.now - self._inputs.now
        if not world.scheduler.over:
            return SimulationResult(
                None, self._usage, self._cost, self._finished, None, self._bottleneck(seconds)
            )
        return self._scaled(seconds)

    def _wait_cause(self, now: float) -> WaitCause:
        if not self._pool.keys.usable_slots(now):
            return WaitCause.COOLDOWN
        return WaitCause.SLOTS if self._pool.keys.all_held(now) else WaitCause.PACE

    def _see(self, seen: Seen, at: float) -> None:
        match seen:
            case events.CallCompleted():
                self._usage += seen.usage
                known = self._cost is not None and seen.cost is not None
                self._cost = (self._cost or 0.0) + (seen.cost or 0.0) if known else None
            case events.ItemEnded():
                self._ends.append(at)
                self._finished += seen.outcome.ending is not Ending.INTERRUPTED
            case events.RunEnded():
                self._exit_code = seen.exit_code
            case _:
                pass

    # From what was tried to all.

    def _scaled(self, seconds: float) -> SimulationResult:
        count, tried = len(self._inputs.entries), self._tried
        bottleneck = self._bottleneck(seconds)
        whole = self._exit_code in (0, 1)
        if count == tried or not whole:
            return SimulationResult(
                seconds, self._usage, self._cost, self._finished, self._exit_code, bottleneck
            )
        usage = sum((life.usage for life in self._traces), Usage())
        share = usage.tokens / self._usage.tokens if self._usage.tokens else count / tried
        cost = None if self._cost is None else self._cost * share
        longer = max(seconds + (count - tried) * self._pace_of_ends(), self._days(usage.calls))
        return SimulationResult(longer, usage, cost, count, self._exit_code, bottleneck)

    def _pace_of_ends(self) -> float:
        """Seconds from one item's end to the next, without the first and the last ones."""
        first, last = len(self._ends) // 4, len(self._ends) - 1 - 2 * self._inputs.limits.parallel
        if last <= first:
            return (self._ends[-1] - self._inputs.now) / len(self._ends)
        return (self._ends[last] - self._ends[first]) / (last - first)

    def _days(self, calls: int) -> float:
        """How long so many calls take by the limits of a day alone."""
        a_day = [bucket.limiter.rates.get(Dimension.DAY) for bucket in self._pool.buckets().values()]
        if not a_day or None in a_day:
            return 0.0
        amount = sum(rate.amount for rate in a_day if rate)
        return DAY * ((calls - 1) // amount) if amount else 0.0

    # What holds it up.

    def _bottleneck(self, seconds: float) -> Bottleneck | None:
        workers = min(self._inputs.limits.parallel, self._tried)
        if seconds <= 0:
            return None
        what, waited = max(self._waits_by_cause.items(), key=lambda pair: pair[1])
        share = waited / (workers * seconds)
        if share < NOTICEABLE:
            more = self._tried > self._inputs.limits.parallel
            return Bottleneck("workers" if more else "items", 0.0, float(workers))
        match what:
            case WaitCause.SLOTS:
                return Bottleneck(what, share, float(self._pool.keys.usable_slots(self._simulator.now)))
            case WaitCause.COOLDOWN:
                return Bottleneck(what, share)
            case WaitCause.PACE:
                return self._tightest(seconds, share)

    def _tightest(self, seconds: float, share: float) -> Bottleneck:
        """The limit of which the most was used."""
        allowed: dict[Dimension, list[Rate]] = {}
        for bucket in self._pool.buckets().values():
            for dimension, rate in bucket.limiter.rates.items():
                allowed.setdefault(dimension, []).append(rate)

        def used(dimension: Dimension) -> float:
            rates = allowed[dimension]
            room = sum(rate.amount + rate.per_second * seconds for rate in rates)
            return _sent(self._usage, dimension) / room if room else 0.0

        if not allowed:
            return Bottleneck(WaitCause.PACE, share)
        dimension = max(allowed, key=used)
        rates = allowed[dimension]
        longest = max(rate.seconds for rate in rates)
        return Bottleneck(dimension, share, sum(rate.per_second for rate in rates) * longest, longest)


def _cast(entries: Sequence[PlanEntry], traces: tuple[ItemTrace, ...], draw: int) -> list[ItemTrace]:
    """A life for every item: dealt like shuffled cards, all of them before any again."""
    dealt = Random(draw).sample(traces, len(traces))
    return [_fitting(entry, dealt[place % len(dealt)]) for place, entry in enumerate(entries)]


def _fitting(entry: PlanEntry, life: ItemTrace) -> ItemTrace:
    if entry.item.problems:
        return ItemTrace(life.start)
    return life.remaining_from(entry.node) if entry.node else life


def _pool(inputs: SimulationInputs) -> Pool:
    """With what is known of the keys; what was found out is taken for a limit that stands."""
    pool = Pool(inputs.credentials)
    for note in inputs.notes:
        pool.apply_note(_certain(note))
    return pool


def _certain(note: Note) -> Note:
    if not isinstance(note, BucketLimitsLearned):
        return note
    rate = RateEstimator(per_second=note.requests_per_second, window=note.window_seconds).rate
    if rate is None:
        return note
    if note.token_rate is not None:
        found = LimitSeen(Dimension.TOKENS, note.token_rate.amount, note.token_rate.seconds)
    else:
        found = LimitSeen(Dimension.REQUESTS, rate.amount, rate.seconds)
    named = tuple(limit for limit in note.limits if limit.dimension is not found.dimension)
    return replace(note, limits=(*named, found), requests_per_second=None, token_rate=None)


def _sent(usage: Usage, dimension: Dimension) -> float:
    match dimension:
        case Dimension.REQUESTS | Dimension.DAY:
            return float(usage.calls)
        case Dimension.TOKENS:
            return float(usage.tokens)
        case Dimension.INPUT:
            return float(usage.input_tokens)
        case Dimension.OUTPUT:
            return float(usage.output_tokens)
