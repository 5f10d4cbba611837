"""All that a worker is told at its start."""

from dataclasses import dataclass

from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Item
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class RoleModel:
    """Who plays a role: providers in the order of preference, and the model to ask each for."""

    role: str
    providers: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GitHubAccess:
    """Where the project keeps its issues; the token travels on the worker's channel alone."""

    repository: str
    base_url: str
    token: Secret
    max_wait: float = 3600.0


@dataclass(frozen=True, slots=True)
class FiledIssue:
    """Where the item's issue was found before the run, if it was; since when to look for others."""

    address: str
    since: str


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """`workflow` is what was typed; `origin` is where that was found."""

    run: str
    coordinator: int
    project: str
    workflow: str
    item: Item
    database: str
    max_iterations: int
    models: tuple[RoleModel, ...]
    fresh: bool = False
    redo: bool = False
    gates: tuple[Gate, ...] = ()
    text: str | None = None
    github: GitHubAccess | None = None
    filed: FiledIssue | None = None
    origin: str = ""
