"""One random life of a fleet: a submission that is worked on, with faults, until every item is done."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from agentos.core.planning.submission import SharedTask, thread_id
from agentos.core.protocol import events
from agentos.core.protocol.ports import Clock
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import Secret
from agentos.fleet.follow import FleetFollower, Followed
from agentos.fleet.item_workflow import ItemStart
from agentos.fleet.poller import TemporalPoller
from agentos.fleet.turns import ItemTurns
from agentos.offline.rate_windows import WindowKind
from agentos.run.signals import Signals
from agentos.storage.postgres.fleet_items import EventCursor

from .checks import Checks
from .faults import FAULTS
from .gateway import Gateway, Providers
from .network import Machine
from .postgres import ItemRow, Postgres
from .stores import PROJECT, SimulatedFleetDatabase, SimulatedItemStore
from .surroundings import Surroundings, Work
from .temporal import Temporal, TemporalClient
from .virtual_time import new_loop
from .worker import SimulatedWorker

MAX_SECONDS = 4 * 3600.0
SETTLE_SECONDS = 60.0  # after the last item, for followers and outranked machines
FAULTS_UNTIL = 240.0  # seconds


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the fleet that a planted bug replaces."""

    poller: type[TemporalPoller] = TemporalPoller
    store: type[SimulatedItemStore] = SimulatedItemStore
    postgres: type[Postgres] = Postgres
    database: type[SimulatedFleetDatabase] = SimulatedFleetDatabase
    turns: Callable[[], ItemTurns] = ItemTurns


@dataclass(slots=True)
class FleetTotals:
    """What happened in all lives so far."""

    lives: int = 0
    items: int = 0
    steps: int = 0
    attempts: int = 0
    answered: int = 0
    repeated: int = 0
    lost_attempts: int = 0
    events: int = 0
    not_yet: int = 0
    over_limit: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


class Life:
    """The seed determines everything that happens."""

    def __init__(
        self,
        seed: int,
        totals: FleetTotals | None = None,
        trace: list[str] | None = None,
        parts: Parts = Parts(),  # noqa: B008 - frozen
    ) -> None:
        self.random = Random(seed)
        self.totals = totals or FleetTotals()
        self.trace = trace
        self.parts = parts
        self.loop = new_loop()
        self.items = [f"LLD-{number}" for number in range(1, self.random.randint(1, 12) + 1)]
        self.recorder = Recorder(self)
        self.workers: list[SimulatedWorker] = []
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        self.loop.run(self._live(), until=self.loop.time() + MAX_SECONDS)
        self._add_totals()

    async def _live(self) -> None:
        self._build()
        over = self.temporal.over = self.loop.create_future()
        self._submit()
        for _ in range(self.random.randint(1, 4)):
            self.add_worker()
        following = asyncio.ensure_future(self._follow())
        for _ in range(self.random.choice((0, 2, 5, 10, 20))):
            at = self.random.uniform(0.0, FAULTS_UNTIL)
            self.loop.call_later(at, self.random.choice(FAULTS), self)
        self.loop.call_later(1.0, self._keep_up)
        self.loop.call_later(1.0, self._decide_gates)
        await over
        code = await following
        await asyncio.sleep(SETTLE_SECONDS)
        assert not self.loop.errors, self.loop.errors
        Checks(self).check(code)

    def _build(self) -> None:
        random = self.random
        unconfirmed, slow = random.choice((0.0, 0.0, 0.02)), random.choice((0.0, 0.05))
        self.postgres = self.parts.postgres(random, unconfirmed, slow)
        self.temporal = Temporal(self.parts.turns)
        slowest = random.choice((1.0, 8.0, 60.0))
        self.providers = Providers(
            random, (slowest / 4, slowest), error_rate=random.choice((0.0, 0.0, 0.05)), concurrency=2
        )
        limit, seconds = random.choice((1, 3, 20)), random.choice((20.0, 60.0))
        kind = random.choice(list(WindowKind))
        credentials = []
        for number in range(1, random.randint(1, 4) + 1):
            self.providers.add_key(name := f"key-{number}", kind, limit, seconds)
            rates = ((Dimension.REQUESTS, Rate(limit, seconds)),)
            secret = Secret(f"the secret of key {number}")
            credentials.append(Credential(name, "gemini", secret, concurrency=2, rates=rates))
        self.gateway = Gateway(credentials, self.providers, random.random, random.choice((5.0, 60.0)))
        self.work = Work(
            random,
            nodes=random.randint(1, 4),
            parallel=random.randint(1, 4),
            gate=random.choice((-1, -1, 0, 1)),
            crash=random.choice((0.0, 0.0, 0.2)),
            failure=random.choice((0.0, 0.0, 0.1)),
        )
        shared = SharedTask(PROJECT, "lld", 1, self.work.retries, 1800.0, (), (), ())
        self.around = Surroundings(
            self.work,
            self.postgres,
            self.temporal,
            self.gateway,
            shared,
            self.parts.poller,
            self.parts.store,
            self.parts.database,
        )

    def _submit(self) -> None:
        for item in self.items:
            self.postgres.rows[thread_id(PROJECT, item)] = ItemRow(item, 1)
            self.temporal.submit(ItemStart(PROJECT, item, 1, self.work.retries, "q"))

    def add_worker(self) -> None:
        machine = Machine(f"host-{len(self.workers) + 1}", self.random)
        self.workers.append(SimulatedWorker(machine, self.around))

    @property
    def living(self) -> list[SimulatedWorker]:
        return [worker for worker in self.workers if worker.machine.process.is_alive]

    def _keep_up(self) -> None:
        """Whoever runs the fleet starts a worker where none is left."""
        if not any(not worker.is_draining and worker.machine.process.runs for worker in self.living):
            self.add_worker()
        self.loop.call_later(self.random.uniform(1.0, 10.0), self._keep_up)

    def _decide_gates(self) -> None:
        """A person decides on everything that waits: the note first, then the signal, again until it is heard."""
        if self.postgres.is_up and self.temporal.is_up:
            for thread, row in self.postgres.rows.items():
                if row.state == "parked":
                    row.notes["decision"] = "approved"
                    self.temporal.signal(thread)
        self.loop.call_later(self.random.uniform(1.0, 20.0), self._decide_gates)

    async def _follow(self) -> int:
        machine = Machine("terminal", self.random)
        shared, names = self.around.shared, tuple(self.items)
        followed = Followed(PROJECT, names, dict.fromkeys(names, 1), names)
        follower = FleetFollower(
            [self.recorder],
            cast(Any, self.parts.database(self.postgres, machine, shared)),
            cast(Any, TemporalClient(self.temporal)),
            cast(Any, SimpleNamespace(collect_all=lambda: 0, conflicts=[])),
            followed,
            clock=Clock(self.loop.time, self.loop.time),
        )
        started = events.RunStarted("", "", "", names, 1, ())
        return await follower.run(started, EventCursor(1), Signals(lambda: None))

    def log(self, text: object) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.loop.time():12.3f}  {text}")

    def fault(self, name: str, worker: SimulatedWorker | None = None) -> None:
        self.faults[name] += 1
        self.log(f"*** {name} {worker.machine.name if worker else ''}")

    def _add_totals(self) -> None:
        totals = self.totals
        totals.lives += 1
        totals.items += len(self.items)
        totals.steps += self.loop.steps
        totals.attempts += self.temporal.attempts
        totals.answered += self.providers.count
        totals.repeated += self.providers.count - len(self.providers.answered)
        totals.lost_attempts += len(self.temporal.lost)
        totals.events += len(self.postgres.events)
        totals.not_yet += self.gateway.all_not_yet
        totals.over_limit += self.providers.over_limit
        totals.seconds += self.loop.time() - 1000.0
        totals.faults += self.faults + Counter(crashed=self.work.crashes)


@dataclass(slots=True)
class Recorder:
    """What the follower shows."""

    life: Life
    seen: list[events.Event] = field(default_factory=list)

    def on_event(self, event: events.Event, at: float) -> None:
        self.seen.append(event)
        self.life.log(event)

    def close(self) -> None:
        pass
