"""One random scenario: a backlog that is worked on by run after run until every item is done."""

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

from .faulty_workers import Disk, FaultRates, FaultyWorkers
from .provider import Provider, Quota

MAX_RUNS = 4
MAX_STEPS = 60_000
MAX_SHUTDOWN = 10.0  # seconds
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@dataclass(slots=True)
class Totals:
    """What happened in all scenarios so far."""

    scenarios: int = 0
    runs: int = 0
    steps: int = 0
    answered: int = 0
    refused: int = 0
    crashes: int = 0
    signals: int = 0
    edits: int = 0
    exits: dict[int, int] = field(default_factory=dict)


class Scenario:
    """Runs over one backlog; the seed determines everything that happens."""

    def __init__(
        self,
        seed: int,
        totals: Totals | None = None,
        trace: list[str] | None = None,
        scheduler: type[Scheduler] = Scheduler,
    ) -> None:
        self.random = Random(seed)
        self.scheduler = scheduler
        self.totals = totals or Totals()
        self.trace = trace
        self.needed = self.random.randint(1, 4)
        self.items = tuple(f"LLD-{number}" for number in range(1, self.random.randint(1, 8) + 1))
        self.disk = Disk()
        self.provider = Provider.random_provider(self.random)
        self.keys = [self.key(number) for number in range(1, self.random.randint(1, 4) + 1)]
        self.fault_rates = self._draw_fault_rates()
        self.invalid: set[str] = set()

    def run(self) -> None:
        """Several runs with faults, then one without: after it no item is left."""
        self.totals.scenarios += 1
        for _ in range(self.random.randint(1, MAX_RUNS)):
            if left := self.left():
                _CheckedRun(self, left).run()
        self._remove_faults()
        if left := self.left():
            code = _CheckedRun(self, left, faults=False).run()
            assert code == 0, f"without faults the run ended with {code}"
        assert not self.left(), f"left undone: {self.left()}"
        for item in self.items:
            done = self.disk.calls.get(item, 0)
            assert item in self.invalid or done == self.needed, f"{item} was finished after {done} answers"
        self.totals.answered += self.provider.answered
        self.totals.refused += self.provider.refused

    def left(self) -> tuple[str, ...]:
        return tuple(
            item for item in self.items if item not in self.disk.documents and item not in self.invalid
        )

    def _remove_faults(self) -> None:
        self.keys = [replace(self.key(100), enabled=True)]
        provider = self.provider
        provider.outages, provider.error_rate, provider.rejected = [], 0.0, set()
        provider.quotas = {self.keys[0].quota: Quota(None, None, hints=True, named=True)}
        self.fault_rates = FaultRates()

    def key(self, number: int) -> Credential:
        random = self.random
        if random.random() < 0.1:
            self.provider.rejected.add(f"key-{number}")
        return Credential(
            f"key-{number}",
            "gemini",
            Secret(f"the secret of key {number}"),
            bucket=random.choice(("", "", "shared")),
            concurrency=random.randint(1, 3),
            enabled=random.random() < 0.95,
        )

    def _draw_fault_rates(self) -> FaultRates:
        def share() -> float:
            return self.random.choice((0.0, 0.0, 0.0, 0.02, 0.2))

        return FaultRates(share(), share() / 4, share(), share(), share() / 2)


class _CheckedRun:
    """One run of a scenario, with assertions on every event and command."""

    def __init__(self, scenario: Scenario, items: tuple[str, ...], *, faults: bool = True) -> None:
        random = scenario.random
        self.scenario = scenario
        self.items = items
        self.limits = Limits(
            parallel=random.randint(1, 10),
            retries=random.randint(0, 2),
            timeout=random.choice((300.0, 1800.0)) if faults else 1800.0,
            max_wait=random.choice((30.0, 3600.0)),
        )
        self.pool = Pool(scenario.keys)
        self.simulated_workers = FaultyWorkers(
            random, scenario.provider, scenario.disk, scenario.fault_rates, scenario.needed
        )
        self.buckets = self.simulated_workers.buckets
        self.slots: dict[str, int] = {}
        self._register_keys(scenario.keys)
        scheduler = scenario.scheduler(items, self.pool, self.limits, random.random, 0.0)
        self.simulator = EventSimulator(scheduler, self.simulated_workers, 0.0, self.observe)
        self.workers: set[str] = set()
        self.leases: dict[str, GrantLease] = {}
        self.asked: dict[str, str] = {}
        self.closed_until: dict[str, float] = {}
        self.ended: dict[str, events.ItemEnded] = {}
        self.timed_out: set[str] = set()
        self.stopped_at: float | None = None
        self.runs_ended = 0
        self.exit_code = -1
        if faults:
            self._plan_external_events()

    def run(self) -> int:
        self.scenario.totals.runs += 1
        steps = 0
        self.simulator.begin()
        while not self.simulator.scheduler.over:
            self.simulator.step()
            steps += 1
            assert steps < MAX_STEPS, (
                f"the run has not ended after {steps} steps, at {self.simulator.now:g} s"
            )
            late = self.stopped_at is not None and self.simulator.now > self.stopped_at + MAX_SHUTDOWN
            assert not late, "the shutdown takes too long"
        self.scenario.totals.steps += steps
        self._check_end()
        exits = self.scenario.totals.exits
        exits[self.exit_code] = exits.get(self.exit_code, 0) + 1
        return self.exit_code

    def _plan_external_events(self) -> None:
        random, simulator = self.scenario.random, self.simulator
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            simulator.plan(random.uniform(0, 300), functools.partial(self._signal, random.choice(SIGNALS)))
        for _ in range(random.choice((0, 0, 1, 3))):
            simulator.plan(random.uniform(0, 600), self._edit_keys)

    def _signal(self, signal: str, now: float) -> StepResult:
        self.scenario.totals.signals += 1
        return self.simulator.scheduler.handle(events.StopRequested(signal), now)

    def _edit_keys(self, now: float) -> StepResult:
        """Add a key, or remove one for good."""
        scenario, random = self.scenario, self.scenario.random
        scenario.totals.edits += 1
        if len(scenario.keys) > 1 and random.random() < 0.4:
            removed = scenario.keys.pop(random.randrange(len(scenario.keys)))
            if removed.quota not in {key.quota for key in scenario.keys}:
                self.closed_until.pop(removed.quota, None)
        else:
            scenario.keys = [*scenario.keys, scenario.key(random.randint(200, 10**6))]
        self._register_keys(scenario.keys)
        return self.simulator.scheduler.change_credentials(list(scenario.keys), now)

    def _register_keys(self, keys: list[Credential]) -> None:
        self.buckets.update({key.name: key.quota for key in keys})
        self.slots.update({key.name: key.concurrency for key in keys})

    # Invariants.

    def observe(self, observed: Observed, at: float) -> None:
        if self.scenario.trace is not None:
            self.scenario.trace.append(f"{at:12.3f}  {observed}")
        match observed:
            case StartWorker() | StopWorker() | KillWorker() | GrantLease():
                self._check_command(observed, at)
            case events.ItemEnded():
                assert observed.item not in self.ended, f"{observed.item} ended twice"
                assert observed.attempts <= self.limits.retries + 1, f"{observed.item} had too many attempts"
                self.ended[observed.item] = observed
            case events.ShutdownStarted():
                self.stopped_at = at if self.stopped_at is None else self.stopped_at
            case events.RunEnded():
                self.runs_ended += 1
                self.exit_code = observed.exit_code
            case _:
                self._check_worker_event(observed, at)

    def _check_command(self, command: StartWorker | StopWorker | KillWorker | GrantLease, at: float) -> None:
        if isinstance(command, StartWorker):
            assert self.stopped_at is None, f"{command.item} was started while stopping"
            assert command.item not in self.workers and command.item not in self.ended
            self.workers.add(command.item)
            assert len(self.workers) <= self.limits.parallel, "more workers than --parallel allows"
        if isinstance(command, KillWorker) and self.stopped_at is None:
            self.timed_out.add(command.item)
        if isinstance(command, GrantLease):
            assert command.item in self.workers, "a lease for an item without a worker"
            bucket = self.buckets[command.key]
            closed = self.closed_until.get(bucket, 0.0)
            assert at >= closed - 1e-6, f"{command.key} was used {closed - at:.3f} s too early"
            self.leases[command.lease] = command
            held = sum(lease.key == command.key for lease in self.leases.values())
            assert held <= self.slots[command.key], f"{held} concurrent calls with {command.key}"

    def _check_worker_event(self, observed: Observed, at: float) -> None:
        match observed:
            case events.LeaseReleased():
                lease = self.leases.pop(observed.lease)
                if observed.refusal is None:
                    self.scenario.disk.calls[observed.item] = (
                        self.scenario.disk.calls.get(observed.item, 0) + 1
                    )
                elif observed.refusal.kind is RefusalKind.RATE_LIMITED and lease.key in self._usable_names():
                    # Without a hint the limiter probes when it sees fit; only a hint is a promise to keep.
                    bucket, hint = self.buckets[lease.key], observed.refusal.seconds or 0.0
                    self.closed_until[bucket] = max(self.closed_until.get(bucket, 0.0), at + hint)
            case events.WorkerReported() if observed.outcome.ending is Ending.FINISHED:
                self.scenario.disk.documents.add(observed.item)
            case events.WorkerReported() if observed.outcome.error == "Invalid spec format":
                self.scenario.invalid.add(observed.item)
            case events.WorkerExited() | events.WorkerStartFailed():
                self.scenario.totals.crashes += not getattr(observed, "clean", False)
                self.workers.discard(observed.item)
                self.leases = {
                    name: lease for name, lease in self.leases.items() if lease.item != observed.item
                }
            case _:
                pass

    def _usable_names(self) -> set[str]:
        return {key.name for key in self.scenario.keys}

    def _check_end(self) -> None:
        assert set(self.ended) == set(self.items), "an item was lost"
        assert self.runs_ended == 1 and not self.workers and not self.pool.held()
        endings = {item.outcome.ending for item in self.ended.values()}
        if self.exit_code == 0:
            assert endings <= {Ending.FINISHED}, f"exit 0 with {endings}"
        if self.exit_code == 1:
            assert Ending.FAILED in endings
        if self.scenario.fault_rates == FaultRates():
            failed = {item for item, end in self.ended.items() if end.outcome.ending is Ending.FAILED}
            assert failed <= self.timed_out, "an item failed although only quotas were in the way"
