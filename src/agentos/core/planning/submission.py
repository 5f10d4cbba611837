"""What travels with a submission to a fleet: everything a worker needs that knows neither the project nor its settings."""

from dataclasses import dataclass

from agentos.core.planning.gates import Gate
from agentos.core.planning.plan import Item
from agentos.core.planning.worker_task import CallTimeout, FiledIssue


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """The models that the project wants for a role; none: the default of whatever provider the gateway has."""

    role: str
    models: tuple[str, ...]
    max_output_tokens: int | None
    effort: str


@dataclass(frozen=True, slots=True)
class CodeShipment:
    """The code index of the submission; `digest` names the file that was sent."""

    digest: str
    snapshot: str
    commit: str
    tokens: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedTask:
    """What all items of a submission share. `prompts` are the project's own prompt files, by path.

    `account` names it at the gateway, where all of its calls together may cost `budget` US dollars.
    """

    project: str
    workflow: str
    max_iterations: int
    retries: int
    timeout: float
    gates: tuple[Gate, ...]
    roles: tuple[RoleSettings, ...]
    call_timeouts: tuple[CallTimeout, ...]
    prompts: tuple[tuple[str, str], ...] = ()
    code: CodeShipment | None = None
    github: str = ""
    github_url: str = ""
    account: str = ""
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class ItemTask:
    """One item of a submission. `inputs` are the files of the project that it needs, by path."""

    item: Item
    text: str | None = None
    fresh: bool = False
    redo: bool = False
    inputs: tuple[tuple[str, str], ...] = ()
    filed: FiledIssue | None = None


def thread_id(project: str, item: str) -> str:
    """Names an item on the whole fleet: in Temporal, and for LangGraph."""
    return f"{project}/{item}"
