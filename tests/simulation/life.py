"""One imagined life of a backlog: runs, one after the other, until every item is done."""

import functools
from dataclasses import dataclass, field, replace
from random import Random

from agentos.core.forecast.discrete_events import EventSimulator, Observed
from agentos.core.protocol import events
from agentos.core.protocol.commands import GrantLease, KillWorker, StartWorker, StepResult, StopWorker
from agentos.core.protocol.results import Ending
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret

from .crew import Dangers, Disk, FaultyCrew
from .provider import Provider, Quota

MOST_RUNS = 4
MOST_STEPS = 60_000
LONGEST_STOP = 10.0
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(slots=True)
class Told:
    """What happened in all lives so far, for people."""

    lives: int = 0
    runs: int = 0
    steps: int = 0
    answered: int = 0
    refused: int = 0
    deaths: int = 0
    stops: int = 0
    edits: int = 0
    exits: dict[int, int] = field(default_factory=dict)


class Life:
    """Everything in it follows from its seed."""

    def __init__(
        self,
        seed: int,
        told: Told | None = None,
        trace: list[str] | None = None,
        brain: type[Scheduler] = Scheduler,
    ) -> None:
        self.random = Random(seed)
        self.brain = brain
        self.told = told or Told()
        self.trace = trace
        self.needed = self.random.randint(1, 4)
        self.items = tuple(f"LLD-{number}" for number in range(1, self.random.randint(1, 8) + 1))
        self.disk = Disk()
        self.provider = Provider.drawn(self.random)
        self.keys = [self.key(number) for number in range(1, self.random.randint(1, 4) + 1)]
        self.dangers = self._dangers()
        self.hopeless: set[str] = set()

    def live(self) -> None:
        """Several runs with all their dangers, then one in fair weather: after it nothing is left."""
        self.told.lives += 1
        for _ in range(self.random.randint(1, MOST_RUNS)):
            if left := self.left():
                _Trip(self, left).go()
        self._calm_down()
        if left := self.left():
            code = _Trip(self, left, fair=True).go()
            assert code == 0, f"in fair weather the run ended with {code}"
        assert not self.left(), f"left undone: {self.left()}"
        for item in self.items:
            done = self.disk.calls.get(item, 0)
            assert item in self.hopeless or done == self.needed, f"{item} was made of {done} answers"
        self.told.answered += self.provider.answered
        self.told.refused += self.provider.refused

    def left(self) -> tuple[str, ...]:
        return tuple(
            item for item in self.items if item not in self.disk.documents and item not in self.hopeless
        )

    def _calm_down(self) -> None:
        self.keys = [replace(self.key(100), enabled=True)]
        provider = self.provider
        provider.storms, provider.trouble, provider.dead = [], 0.0, set()
        provider.quotas = {self.keys[0].quota: Quota(None, None, hints=True, named=True)}
        self.dangers = Dangers()

    def key(self, number: int) -> Credential:
        random = self.random
        if random.random() < 0.1:
            self.provider.dead.add(f"key-{number}")
        return Credential(
            f"key-{number}",
            "gemini",
            Secret(f"the secret of key {number}"),
            bucket=random.choice(("", "", "shared")),
            concurrency=random.randint(1, 3),
            enabled=random.random() < 0.95,
        )

    def _dangers(self) -> Dangers:
        def share() -> float:
            return self.random.choice((0.0, 0.0, 0.0, 0.02, 0.2))

        return Dangers(share(), share() / 4, share(), share(), share() / 2)


class _Trip:
    """One run of a life, watched."""

    def __init__(self, life: Life, items: tuple[str, ...], *, fair: bool = False) -> None:
        random = life.random
        self.life = life
        self.items = items
        self.limits = Limits(
            parallel=random.randint(1, 10),
            retries=random.randint(0, 2),
            timeout=1800.0 if fair else random.choice((300.0, 1800.0)),
            max_wait=random.choice((30.0, 3600.0)),
        )
        self.pool = Pool(life.keys)
        self.crew = FaultyCrew(random, life.provider, life.disk, life.dangers, life.needed)
        self.buckets = self.crew.buckets
        self.slots: dict[str, int] = {}
        self._know(life.keys)
        run = life.brain(items, self.pool, self.limits, random.random, 0.0)
        self.world = EventSimulator(run, self.crew, 0.0, self.see)
        self.workers: set[str] = set()
        self.leases: dict[str, GrantLease] = {}
        self.asked: dict[str, str] = {}
        self.closed_until: dict[str, float] = {}
        self.ended: dict[str, events.ItemEnded] = {}
        self.timed_out: set[str] = set()
        self.stopped_at: float | None = None
        self.runs_ended = 0
        self.exit_code = -1
        if not fair:
            self._plan_interference()

    def go(self) -> int:
        self.life.told.runs += 1
        steps = 0
        self.world.begin()
        while not self.world.scheduler.over:
            self.world.step()
            steps += 1
            assert steps < MOST_STEPS, f"no end after {steps} steps, at {self.world.now:g} s"
            late = self.stopped_at is not None and self.world.now > self.stopped_at + LONGEST_STOP
            assert not late, "the stop takes too long"
        self.life.told.steps += steps
        self._check_end()
        exits = self.life.told.exits
        exits[self.exit_code] = exits.get(self.exit_code, 0) + 1
        return self.exit_code

    def _plan_interference(self) -> None:
        random, world = self.life.random, self.world
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            world.plan(random.uniform(0, 300), functools.partial(self._signal, random.choice(SIGNALS)))
        for _ in range(random.choice((0, 0, 1, 3))):
            world.plan(random.uniform(0, 600), self._edit)

    def _signal(self, signal: str, now: float) -> StepResult:
        self.life.told.stops += 1
        return self.world.scheduler.handle(events.StopRequested(signal), now)

    def _edit(self, now: float) -> StepResult:
        """Somebody adds a key, or takes one away for good."""
        life, random = self.life, self.life.random
        life.told.edits += 1
        if len(life.keys) > 1 and random.random() < 0.4:
            gone = life.keys.pop(random.randrange(len(life.keys)))
            if gone.quota not in {key.quota for key in life.keys}:
                self.closed_until.pop(gone.quota, None)
        else:
            life.keys = [*life.keys, life.key(random.randint(200, 10**6))]
        self._know(life.keys)
        return self.world.scheduler.change_credentials(list(life.keys), now)

    def _know(self, keys: list[Credential]) -> None:
        self.buckets.update({key.name: key.quota for key in keys})
        self.slots.update({key.name: key.concurrency for key in keys})

    # What must be true of all that is seen.

    def see(self, seen: Observed, at: float) -> None:
        if self.life.trace is not None:
            self.life.trace.append(f"{at:12.3f}  {seen}")
        match seen:
            case StartWorker() | StopWorker() | KillWorker() | GrantLease():
                self._see_command(seen, at)
            case events.ItemEnded():
                assert seen.item not in self.ended, f"{seen.item} ended twice"
                assert seen.attempts <= self.limits.retries + 1, f"{seen.item} was tried too often"
                self.ended[seen.item] = seen
            case events.ShutdownStarted():
                self.stopped_at = at if self.stopped_at is None else self.stopped_at
            case events.RunEnded():
                self.runs_ended += 1
                self.exit_code = seen.exit_code
            case _:
                self._see_worker(seen, at)

    def _see_command(self, seen: StartWorker | StopWorker | KillWorker | GrantLease, at: float) -> None:
        if isinstance(seen, StartWorker):
            assert self.stopped_at is None, f"{seen.item} was started while stopping"
            assert seen.item not in self.workers and seen.item not in self.ended
            self.workers.add(seen.item)
            assert len(self.workers) <= self.limits.parallel, "more workers than asked for"
        if isinstance(seen, KillWorker) and self.stopped_at is None:
            self.timed_out.add(seen.item)
        if isinstance(seen, GrantLease):
            assert seen.item in self.workers, "a lease for nobody"
            bucket = self.buckets[seen.key]
            closed = self.closed_until.get(bucket, 0.0)
            assert at >= closed - 1e-6, f"{seen.key} was used {closed - at:.3f} s before its time"
            self.leases[seen.lease] = seen
            held = sum(lease.key == seen.key for lease in self.leases.values())
            assert held <= self.slots[seen.key], f"{held} calls at once with {seen.key}"

    def _see_worker(self, seen: Observed, at: float) -> None:
        match seen:
            case events.LeaseReleased():
                lease = self.leases.pop(seen.lease)
                if seen.refusal is None:
                    self.life.disk.calls[seen.item] = self.life.disk.calls.get(seen.item, 0) + 1
                elif seen.refusal.kind is RefusalKind.RATE_LIMITED and lease.key in self._usable_names():
                    bucket = self.buckets[lease.key]
                    until = at + (60.0 if seen.refusal.seconds is None else seen.refusal.seconds)
                    self.closed_until[bucket] = max(self.closed_until.get(bucket, 0.0), until)
            case events.WorkerReported() if seen.outcome.ending is Ending.FINISHED:
                self.life.disk.documents.add(seen.item)
            case events.WorkerReported() if seen.outcome.error == "Invalid spec format":
                self.life.hopeless.add(seen.item)
            case events.WorkerExited() | events.WorkerStartFailed():
                self.life.told.deaths += not getattr(seen, "clean", False)
                self.workers.discard(seen.item)
                self.leases = {name: one for name, one in self.leases.items() if one.item != seen.item}
            case _:
                pass

    def _usable_names(self) -> set[str]:
        return {key.name for key in self.life.keys}

    def _check_end(self) -> None:
        assert set(self.ended) == set(self.items), "an item got lost"
        assert self.runs_ended == 1 and not self.workers and not self.pool.held()
        endings = {item.outcome.ending for item in self.ended.values()}
        if self.exit_code == 0:
            assert endings <= {Ending.FINISHED}, f"exit 0 with {endings}"
        if self.exit_code == 1:
            assert Ending.FAILED in endings
        if self.life.dangers == Dangers():
            failed = {item for item, end in self.ended.items() if end.outcome.ending is Ending.FAILED}
            assert failed <= self.timed_out, "an item failed, and nothing went wrong but quota"
