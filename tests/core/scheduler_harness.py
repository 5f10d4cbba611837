"""A run between workers, keys and neighbours, on a clock that the test moves."""

from collections.abc import Iterator
from typing import TypeVar

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, GrantLease, StartWorker, StepResult
from agentos.core.protocol.peer_notes import Note
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.refusals import Refusal
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.scheduler import Scheduler

from .builders import proven, steady

T = TypeVar("T")
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def pass_time(run: Scheduler, now: float, until: float) -> Iterator[StepResult]:
    """Moves the clock as the coordinator does: deadline by deadline."""
    while (due := run.deadline(now)) is not None and due <= until and not run.over:
        now = max(now, due)
        yield run.wake(now)
    yield run.wake(until)


class Conducted:
    """Remembers everything that the run was told to do and to tell."""

    def __init__(self, credentials: list[Credential], items: int = 1, limits: Limits | None = None) -> None:
        names = tuple(f"LLD-{number}" for number in range(1, items + 1))
        self.now = 1000.0
        self.told: list[Command | events.News] = []
        self.notes: list[Note] = []
        self.pool = proven(credentials)
        self.run = Scheduler(names, self.pool, limits or Limits(parallel=items), steady, self.now)
        self._take(self.run.begin(self.now))

    def want(self, item: str, **more: object) -> GrantLease | None:
        """Asks for a call; gives the lease if it is granted at once."""
        fields: dict[str, object] = {"call": "call", "providers": ("gemini",), **more}
        self.hear(events.LeaseRequested(item=item, **fields))  # type: ignore[arg-type]
        return self.held(item)

    def held(self, item: str) -> GrantLease | None:
        """The last lease that the item was given and has not given back."""
        leases = [told for told in self.told if isinstance(told, GrantLease) and told.item == item]
        return leases[-1] if leases and self.pool.lease(leases[-1].lease) else None

    def answer(self, lease: GrantLease, usage: Usage | None = None) -> None:
        self.hear(events.LeaseReleased(lease.item, lease.lease, 1.0, usage or Usage(1, 10, 10)))

    def refuse(self, lease: GrantLease, refusal: Refusal) -> None:
        self.hear(events.LeaseReleased(lease.item, lease.lease, 0.1, refusal=refusal))

    def finish(self, item: str, outcome: Outcome = APPROVED) -> None:
        self.hear(events.WorkerReported(item, outcome), events.WorkerExited(item, "exit 0", clean=True))

    def learn(self, *notes: Note) -> None:
        """As the coordinator does: first what the neighbours say, then a decision."""
        for note in notes:
            self.pool.apply_note(note)
        self._take(self.run.wake(self.now))

    def hear(self, *heard: events.Event) -> None:
        for event in heard:
            self._take(self.run.handle(event, self.now))

    def at(self, now: float) -> None:
        for decision in pass_time(self.run, self.now, now):
            self._take(decision)
        self.now = now

    def of(self, kind: type[T]) -> list[T]:
        return [told for told in self.told if isinstance(told, kind)]

    def started(self) -> list[str]:
        return [command.item for command in self.of(StartWorker)]

    def _take(self, decision: StepResult) -> None:
        self.told += [*decision.commands, *decision.news]
        self.notes += self.run.lease_manager.drain_notes()
