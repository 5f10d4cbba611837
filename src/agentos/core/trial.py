"""One imagined run, from its first item to its last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.experience import Experience, Life
from agentos.core.learner import Learner
from agentos.core.limits import Limits
from agentos.core.loads import DAY, Dimension, LimitSeen, Rate
from agentos.core.neighbours import BucketLearnt, Note
from agentos.core.plan import Entry
from agentos.core.pool import Pool
from agentos.core.results import Ending, Usage
from agentos.core.run import Run
from agentos.core.understudies import Understudies
from agentos.core.world import Seen, World

MOST_ITEMS = 600
SAMPLE = 150
LONGEST = 3 * DAY
NOTICEABLE = 0.05


class Holdup(StrEnum):
    """What calls wait for."""

    SLOTS = "key slots"
    PACE = "pace"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a run would find: items, keys with what is known of them, limits, the time."""

    entries: tuple[Entry, ...]
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
class Result:
    """Without an exit code it was not over after the longest time that is looked at."""

    seconds: float | None
    usage: Usage
    cost: float | None
    ended: int
    exit_code: int | None
    bottleneck: Bottleneck | None


class Trial:
    """One imagined run; of very many items it tries the first, and takes the rest to be like them."""

    def __init__(self, scene: Scene, experience: Experience, draw: int = 0) -> None:
        """`draw` says which of the ways to deal the lives out to the items is taken."""
        self._scene = scene
        self._lives = _cast(scene.entries, experience.lives, draw)
        count = len(scene.entries)
        self._tried = count if count <= MOST_ITEMS else SAMPLE
        self._pool = _pool(scene)
        ids = tuple(entry.item.id for entry in scene.entries[: self._tried])
        run = Run(ids, self._pool, scene.limits, lambda: 0.5, scene.now)
        crew = Understudies(dict(zip(ids, self._lives, strict=False)), experience.warm_up)
        self._world = World(run, crew, scene.now, self._see)
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._ends: list[float] = []
        self._finished = 0
        self._exit_code = 0
        self._held_up = dict.fromkeys(Holdup, 0.0)

    def live(self) -> Result:
        world = self._world
        world.begin()
        while not world.run.over and world.now < self._scene.now + LONGEST:
            waiting, before = len(self._pool.waiting(world.now)), world.now
            holdup = self._holdup(before) if waiting else None
            world.step()
            if holdup:
                self._held_up[holdup] += waiting * (world.now - before)
        seconds = world.now - self._scene.now
        if not world.run.over:
            return Result(None, self._usage, self._cost, self._finished, None, self._bottleneck(seconds))
        return self._scaled(seconds)

    def _holdup(self, now: float) -> Holdup:
        if not self._pool.keys.usable_slots(now):
            return Holdup.REST
        return Holdup.SLOTS if self._pool.keys.all_held(now) else Holdup.PACE

    def _see(self, seen: Seen, at: float) -> None:
        match seen:
            case events.CallCounted():
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

    def _scaled(self, seconds: float) -> Result:
        count, tried = len(self._scene.entries), self._tried
        bottleneck = self._bottleneck(seconds)
        whole = self._exit_code in (0, 1)
        if count == tried or not whole:
            return Result(seconds, self._usage, self._cost, self._finished, self._exit_code, bottleneck)
        usage = sum((life.usage for life in self._lives), Usage())
        share = usage.tokens / self._usage.tokens if self._usage.tokens else count / tried
        cost = None if self._cost is None else self._cost * share
        longer = max(seconds + (count - tried) * self._pace_of_ends(), self._days(usage.calls))
        return Result(longer, usage, cost, count, self._exit_code, bottleneck)

    def _pace_of_ends(self) -> float:
        """Seconds from one item's end to the next, without the first and the last ones."""
        first, last = len(self._ends) // 4, len(self._ends) - 1 - 2 * self._scene.limits.parallel
        if last <= first:
            return (self._ends[-1] - self._scene.now) / len(self._ends)
        return (self._ends[last] - self._ends[first]) / (last - first)

    def _days(self, calls: int) -> float:
        """How long so many calls take by the limits of a day alone."""
        a_day = [bucket.pace.rates.get(Dimension.DAY) for bucket in self._pool.buckets().values()]
        if not a_day or None in a_day:
            return 0.0
        amount = sum(rate.amount for rate in a_day if rate)
        return DAY * ((calls - 1) // amount) if amount else 0.0

    # What holds it up.

    def _bottleneck(self, seconds: float) -> Bottleneck | None:
        workers = min(self._scene.limits.parallel, self._tried)
        if seconds <= 0:
            return None
        what, waited = max(self._held_up.items(), key=lambda pair: pair[1])
        share = waited / (workers * seconds)
        if share < NOTICEABLE:
            more = self._tried > self._scene.limits.parallel
            return Bottleneck("workers" if more else "items", 0.0, float(workers))
        match what:
            case Holdup.SLOTS:
                return Bottleneck(what, share, float(self._pool.keys.usable_slots(self._world.now)))
            case Holdup.REST:
                return Bottleneck(what, share)
            case Holdup.PACE:
                return self._tightest(seconds, share)

    def _tightest(self, seconds: float, share: float) -> Bottleneck:
        """The limit of which the most was used."""
        allowed: dict[Dimension, list[Rate]] = {}
        for bucket in self._pool.buckets().values():
            for dimension, rate in bucket.pace.rates.items():
                allowed.setdefault(dimension, []).append(rate)

        def used(dimension: Dimension) -> float:
            rates = allowed[dimension]
            room = sum(rate.amount + rate.per_second * seconds for rate in rates)
            return _sent(self._usage, dimension) / room if room else 0.0

        if not allowed:
            return Bottleneck(Holdup.PACE, share)
        dimension = max(allowed, key=used)
        rates = allowed[dimension]
        longest = max(rate.seconds for rate in rates)
        return Bottleneck(dimension, share, sum(rate.per_second for rate in rates) * longest, longest)


def _cast(entries: Sequence[Entry], lives: tuple[Life, ...], draw: int) -> list[Life]:
    """A life for every item: dealt like shuffled cards, all of them before any again."""
    dealt = Random(draw).sample(lives, len(lives))
    return [_fitting(entry, dealt[place % len(dealt)]) for place, entry in enumerate(entries)]


def _fitting(entry: Entry, life: Life) -> Life:
    if entry.item.problems:
        return Life(life.start)
    return life.rest_from(entry.node) if entry.node else life


def _pool(scene: Scene) -> Pool:
    """With what is known of the keys; what was found out is taken for a limit that stands."""
    pool = Pool(scene.credentials)
    for note in scene.notes:
        pool.hear(_certain(note))
    return pool


def _certain(note: Note) -> Note:
    if not isinstance(note, BucketLearnt):
        return note
    rate = Learner(per_second=note.per_second, window=note.window).rate
    if rate is None:
        return note
    if note.weight is not None:
        found = LimitSeen(Dimension.TOKENS, note.weight.amount, note.weight.seconds)
    else:
        found = LimitSeen(Dimension.REQUESTS, rate.amount, rate.seconds)
    named = tuple(limit for limit in note.limits if limit.dimension is not found.dimension)
    return replace(note, limits=(*named, found), per_second=None, weight=None)


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
