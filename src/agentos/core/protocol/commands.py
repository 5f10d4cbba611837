"""Commands: what the scheduler tells the engine and its workers to do, in the imperative."""

from dataclasses import dataclass, field

from agentos.core.protocol.events import SchedulerEvent
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker for the item in this slot."""

    item: str
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask the worker to checkpoint and exit: at the next node, or after a short grace during a call."""

    item: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Kill the worker and all its processes."""

    item: str


@dataclass(frozen=True, slots=True)
class FreezeWorker:
    """Stop the worker and all its processes (SIGSTOP) until ThawWorker."""

    item: str


@dataclass(frozen=True, slots=True)
class ThawWorker:
    """Continue a frozen worker."""

    item: str


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Give the item a key for one call. The only message that carries a secret; never written to disk.

    `call_timeout` is the credential's own, None if it has none. `answers` counts what the provider has answered in
    this run: the worker learns from it whether an error is its own.
    """

    item: str
    call: str
    lease: str
    key: str
    provider: str
    secret: Secret
    base_url: str | None
    model: str | None
    call_timeout: float | None = None
    answers: int = 0


Command = StartWorker | StopWorker | KillWorker | FreezeWorker | ThawWorker | GrantLease


@dataclass(slots=True)
class StepResult:
    """What one step of the scheduler decided: commands to execute and events to publish."""

    commands: list[Command] = field(default_factory=list)
    events: list[SchedulerEvent] = field(default_factory=list)
