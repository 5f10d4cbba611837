"""The task of a worker: everything it is told when it starts."""

from dataclasses import dataclass

from agentos.core.planning.gates import Gate
from agentos.core.planning.plan import Item
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class RoleModel:
    """The models of one role: providers in order of preference, and the model to use with each."""

    role: str
    providers: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GitHubAccess:
    """The GitHub repository of the project. The token is sent only through the worker's channel."""

    repository: str
    base_url: str
    token: Secret
    max_wait: float = 3600.0


@dataclass(frozen=True, slots=True)
class FiledIssue:
    """The address of the item's existing issue, if any, and the time from which to search for others."""

    address: str
    since: str


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The first message to a worker. `workflow` is the name as typed, `origin` where that workflow was found."""

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
    locks: str = ""  # a folder in the home; empty: the project's locks alone
