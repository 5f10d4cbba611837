"""Orders: what the hands are to do, in the imperative."""

from dataclasses import dataclass, field

from agentos.core.protocol.events import News
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class StartWorker:
    item: str
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Stop at the next node, or give the call up after a grace."""

    item: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    item: str


@dataclass(frozen=True, slots=True)
class FreezeWorker:
    """It stands still, with all its processes, until it is thawed."""

    item: str


@dataclass(frozen=True, slots=True)
class ThawWorker:
    item: str


@dataclass(frozen=True, slots=True)
class GrantLease:
    """The only thing a secret travels in; never written to disk."""

    item: str
    call: str
    lease: str
    key: str
    provider: str
    secret: Secret
    base_url: str | None
    model: str | None


Command = StartWorker | StopWorker | KillWorker | FreezeWorker | ThawWorker | GrantLease


@dataclass(slots=True)
class StepResult:
    """Commands to be obeyed, news to be told."""

    commands: list[Command] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
