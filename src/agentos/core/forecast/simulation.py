"""Simulates one run from start to end, and finds its bottleneck."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from agentos.core.constants import DAY
from agentos.core.forecast.discrete_events import EventSimulator, Observed, ReplayWorkers
from agentos.core.forecast.history import ItemTrace, RunHistory
from agentos.core.planning.plan import PlanEntry
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import BucketLimitsLearned, Note
from agentos.core.protocol.results import Ending, Usage
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, LimitSeen, Rate
from agentos.core.scheduling.scheduler import Scheduler

MAX_SIMULATED_ITEMS = 600
SAMPLE_SIZE = 150  # items simulated of a larger run
MAX_SIMULATED_TIME = 3 * DAY  # seconds
MIN_WAIT_SHARE = 0.05  # of the workers' time; below it, keys are not the bottleneck


class WaitCause(StrEnum):
    """What the calls wait for."""

    SLOTS = "key slots"
    PACE = "pace"
    COOLDOWN = "cooldown"


@dataclass(frozen=True, slots=True)
class SimulationInputs:
    """The starting conditions of a run: items, keys, what is known about their limits, run limits, the time."""

    entries: tuple[PlanEntry, ...]
    credentials: tuple[Credential, ...]
    notes: tuple[Note, ...]
    limits: Limits
    now: float


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limits the throughput, and the share of the workers' time spent waiting for it.

    `amount` is the number of workers or slots, or what a rate limit allows per `seconds`. `keys` are the names of
    the keys whose slots are waited for.
    """

    what: str
    share: float
    amount: float = 0.0
    seconds: float = 0.0
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What became of a simulated run. `seconds` and `exit_code` are None if it had not ended after MAX_SIMULATED_TIME."""

    seconds: float | None
    usage: Usage
    cost: float | None
    items_ended: int
    exit_code: int | None
    bottleneck: Bottleneck | None


class RunSimulation:
    """Simulates one run. Of a large run only the first items are simulated, and the result is extrapolated."""

    def __init__(self, inputs: SimulationInputs, history: RunHistory, seed: int = 0) -> None:
        """`seed` decides which trace is assigned to which item."""
        self._inputs = inputs
        self._traces = _assign_traces(inputs.entries, history.traces, seed)
        count = len(inputs.entries)
        self._simulated = count if count <= MAX_SIMULATED_ITEMS else SAMPLE_SIZE
        self._pool = _build_pool(inputs)
        ids = tuple(entry.item.id for entry in inputs.entries[: self._simulated])
        scheduler = Scheduler(ids, self._pool, inputs.limits, lambda: 0.5, inputs.now)
        workers = ReplayWorkers(dict(zip(ids, self._traces, strict=False)), history.warm_up)
        self._simulator = EventSimulator(scheduler, workers, inputs.now, self._observe)
        self._workers = scheduler.choose_workers(inputs.now)
        """The highest number of workers so far."""
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._end_times: list[float] = []
        self._items_ended = 0
        self._exit_code = 0
        self._waits_by_cause = dict.fromkeys(WaitCause, 0.0)
        self._slot_waits: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """Seconds that calls waited for slots, by the providers that they may use."""

    def run(self) -> SimulationResult:
        simulator = self._simulator
        simulator.begin()
        while not simulator.scheduler.over and simulator.now < self._inputs.now + MAX_SIMULATED_TIME:
            before = simulator.now
            waiting = Counter(request.providers for request in self._pool.waiting(before))
            causes = {providers: self._wait_cause(providers, before) for providers in waiting}
            simulator.step()
            for providers, calls in waiting.items():
                self._add_wait(causes[providers], providers, calls * (simulator.now - before))
        seconds = simulator.now - self._inputs.now
        if simulator.scheduler.over:
            return self._extrapolated(seconds)
        return SimulationResult(
            None, self._usage, self._cost, self._items_ended, None, self._bottleneck(seconds)
        )

    def _wait_cause(self, providers: tuple[str, ...], now: float) -> WaitCause:
        """Keys that may not serve the call are ignored: one of another provider may well be idle."""
        if not self._pool.keys.usable_slots(now, providers):
            return WaitCause.COOLDOWN
        return WaitCause.SLOTS if self._pool.keys.all_held(now, providers) else WaitCause.PACE

    def _add_wait(self, cause: WaitCause, providers: tuple[str, ...], seconds: float) -> None:
        self._waits_by_cause[cause] += seconds
        if cause is WaitCause.SLOTS:
            self._slot_waits[providers] += seconds

    def _observe(self, observed: Observed, at: float) -> None:
        match observed:
            case events.CallCompleted():
                self._usage += observed.usage
                known = self._cost is not None and observed.cost is not None
                self._cost = (self._cost or 0.0) + (observed.cost or 0.0) if known else None
            case events.ItemEnded():
                self._end_times.append(at)
                self._items_ended += observed.outcome.ending is not Ending.INTERRUPTED
            case events.WorkerCountChanged():
                self._workers = max(self._workers, observed.workers)
            case events.RunEnded():
                self._exit_code = observed.exit_code
            case _:
                pass

    # Extrapolation from the simulated items to all of them.

    def _extrapolated(self, seconds: float) -> SimulationResult:
        count, simulated = len(self._inputs.entries), self._simulated
        bottleneck = self._bottleneck(seconds)
        completed = self._exit_code in (0, 1)
        if count == simulated or not completed:
            return SimulationResult(
                seconds, self._usage, self._cost, self._items_ended, self._exit_code, bottleneck
            )
        usage = sum((trace.usage for trace in self._traces), Usage())
        factor = usage.tokens / self._usage.tokens if self._usage.tokens else count / simulated
        cost = None if self._cost is None else self._cost * factor
        extrapolated = seconds + (count - simulated) * self._seconds_per_item()
        total_seconds = max(extrapolated, self._seconds_by_daily_limits(usage.calls))
        return SimulationResult(total_seconds, usage, cost, count, self._exit_code, bottleneck)

    def _seconds_per_item(self) -> float:
        """The mean time between the ends of two items, without the ramp-up and the ramp-down of the run."""
        first, last = len(self._end_times) // 4, len(self._end_times) - 1 - 2 * self._workers
        if last <= first:
            return (self._end_times[-1] - self._inputs.now) / len(self._end_times)
        return (self._end_times[last] - self._end_times[first]) / (last - first)

    def _seconds_by_daily_limits(self, calls: int) -> float:
        """The shortest time for this many calls under the daily limits alone; 0 if a bucket has none."""
        rates = [bucket.limiter.rates.get(Dimension.DAY) for bucket in self._pool.buckets().values()]
        if not rates or None in rates:
            return 0.0
        amount = sum(rate.amount for rate in rates if rate)
        return DAY * ((calls - 1) // amount) if amount else 0.0

    # The bottleneck.

    def _bottleneck(self, seconds: float) -> Bottleneck | None:
        workers = min(self._workers, self._simulated)
        if seconds <= 0:
            return None
        cause, waited = max(self._waits_by_cause.items(), key=lambda pair: pair[1])
        share = waited / (workers * seconds)
        if share < MIN_WAIT_SHARE:
            items_queue = self._simulated > self._workers
            return Bottleneck("workers" if items_queue else "items", 0.0, float(workers))
        match cause:
            case WaitCause.SLOTS:
                return self._scarcest_keys(share)
            case WaitCause.COOLDOWN:
                return Bottleneck(cause, share)
            case WaitCause.PACE:
                return self._tightest_limit(seconds, share)

    def _scarcest_keys(self, share: float) -> Bottleneck:
        """The keys for whose slots calls waited longest."""
        providers = max(self._slot_waits, key=self._slot_waits.__getitem__)
        keys = self._pool.keys.usable(self._simulator.now, providers)
        slots = sum(key.credential.concurrency for key in keys)
        names = tuple(
            name for name in self._pool.keys.names() if name in {key.credential.name for key in keys}
        )
        return Bottleneck(WaitCause.SLOTS, share, float(slots), keys=names)

    def _tightest_limit(self, seconds: float, share: float) -> Bottleneck:
        """The rate limit of which the largest share was used."""
        allowed: dict[Dimension, list[Rate]] = {}
        for bucket in self._pool.buckets().values():
            for dimension, rate in bucket.limiter.rates.items():
                allowed.setdefault(dimension, []).append(rate)

        def share_used(dimension: Dimension) -> float:
            rates = allowed[dimension]
            capacity = sum(rate.amount + rate.per_second * seconds for rate in rates)
            return _amount_used(self._usage, dimension) / capacity if capacity else 0.0

        if not allowed:
            return Bottleneck(WaitCause.PACE, share)
        dimension = max(allowed, key=share_used)
        rates = allowed[dimension]
        longest = max(rate.seconds for rate in rates)
        return Bottleneck(dimension, share, sum(rate.per_second for rate in rates) * longest, longest)


def _assign_traces(entries: Sequence[PlanEntry], traces: tuple[ItemTrace, ...], seed: int) -> list[ItemTrace]:
    """A trace for every item: all traces in random order, repeated as often as needed."""
    shuffled = Random(seed).sample(traces, len(traces))
    return [_fitted(entry, shuffled[index % len(shuffled)]) for index, entry in enumerate(entries)]


def _fitted(entry: PlanEntry, trace: ItemTrace) -> ItemTrace:
    """What the item still has to do of the trace, with its own text; an invalid item fails right after its start."""
    if entry.problems:
        return ItemTrace(trace.start)
    fitted = trace.with_source(entry.item.source_tokens)
    return fitted.remaining_from(entry.node) if entry.node else fitted


def _build_pool(inputs: SimulationInputs) -> Pool:
    """A pool with the notes about its keys applied; limits that were learned are treated as stated by the provider."""
    pool = Pool(inputs.credentials)
    for note in inputs.notes:
        pool.apply_note(_as_stated(note))
    return pool


def _as_stated(note: Note) -> Note:
    if not isinstance(note, BucketLimitsLearned):
        return note
    if note.learned is None or not note.learned.limits:
        return note
    learned = {
        limit.dimension: LimitSeen(limit.dimension, limit.amount, limit.seconds)
        for limit in note.learned.limits
    }
    others = tuple(limit for limit in note.limits if limit.dimension not in learned)
    return replace(note, limits=(*others, *learned.values()), learned=None)


def _amount_used(usage: Usage, dimension: Dimension) -> float:
    match dimension:
        case Dimension.REQUESTS | Dimension.DAY:
            return float(usage.calls)
        case Dimension.TOKENS:
            return float(usage.tokens)
        case Dimension.INPUT:
            return float(usage.input_tokens)
        case Dimension.OUTPUT:
            return float(usage.output_tokens)
