"""Test harness: a scheduler without workers, peers or real time."""

from collections.abc import Iterator
from typing import TypeVar

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, GrantLease, StartWorker, StepResult
from agentos.core.protocol.peer_notes import Note
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.refusals import Refusal
from agentos.core.scheduling.scheduler import Scheduler

from .builders import proven_pool, steady

T = TypeVar("T")
APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


def pass_time(run: Scheduler, now: float, until: float) -> Iterator[StepResult]:
    """Advance the clock from deadline to deadline, as the event loop does."""
    while (due := run.deadline(now)) is not None and due <= until and not run.over:
        now = max(now, due)
        yield run.wake(now)
    yield run.wake(until)


class SchedulerHarness:
    """Drives a scheduler and records every command and event that it returns."""

    def __init__(self, credentials: list[Credential], items: int = 1, limits: Limits | None = None) -> None:
        names = tuple(f"LLD-{number}" for number in range(1, items + 1))
        self.now = 1000.0
        self.outputs: list[Command | events.SchedulerEvent] = []
        self.notes: list[Note] = []
        self.pool = proven_pool(credentials)
        self.run = Scheduler(names, self.pool, limits or Limits(parallel=items), steady, self.now)
        self._collect(self.run.begin(self.now))

    def request(self, item: str, **fields: object) -> GrantLease | None:
        """Request a call; return the lease if it is granted at once."""
        event: dict[str, object] = {"call": "call", "providers": ("gemini",), **fields}
        self.handle(events.LeaseRequested(item=item, **event))  # type: ignore[arg-type]
        return self.held(item)

    def held(self, item: str) -> GrantLease | None:
        """The last lease that the item was granted and has not released."""
        leases = [output for output in self.outputs if isinstance(output, GrantLease) and output.item == item]
        return leases[-1] if leases and self.pool.lease(leases[-1].lease) else None

    def answer(self, lease: GrantLease, usage: Usage | None = None) -> None:
        self.handle(events.LeaseReleased(lease.item, lease.lease, 1.0, usage or Usage(1, 10, 10)))

    def refuse(self, lease: GrantLease, refusal: Refusal) -> None:
        self.handle(events.LeaseReleased(lease.item, lease.lease, 0.1, refusal=refusal))

    def finish(self, item: str, outcome: Outcome = APPROVED) -> None:
        self.handle(events.WorkerReported(item, outcome), events.WorkerExited(item, "exit 0", clean=True))

    def apply_notes(self, *notes: Note) -> None:
        """Apply notes of other runs, then let the scheduler decide, as the event loop does."""
        for note in notes:
            self.pool.apply_note(note)
        self._collect(self.run.wake(self.now))

    def handle(self, *received: events.Event) -> None:
        for event in received:
            self._collect(self.run.handle(event, self.now))

    def advance_to(self, now: float) -> None:
        for result in pass_time(self.run, self.now, now):
            self._collect(result)
        self.now = now

    def of(self, kind: type[T]) -> list[T]:
        return [output for output in self.outputs if isinstance(output, kind)]

    def started(self) -> list[str]:
        return [command.item for command in self.of(StartWorker)]

    def _collect(self, result: StepResult) -> None:
        self.outputs += [*result.commands, *result.events]
        self.notes += self.run.lease_manager.drain_notes()
