"""What a fleet submission contains: everything that a worker without the project and its settings needs."""

from dataclasses import dataclass

from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Item
from agentos.core.planning.worker_task import CallTimeout, FiledIssue


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """The models that the project sets for a role; without any, the default of the gateway's provider is used."""

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

    `account` identifies the submission at the gateway, where all of its calls together may cost `budget` US dollars.
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
    """One item of a submission. `inputs` are the files of the project that it needs, by path. `replaces` is the fingerprint
    of the approved documents that a `redo` replaces."""

    item: Item
    text: str | None = None
    fresh: bool = False
    redo: bool = False
    inputs: tuple[tuple[str, str], ...] = ()
    filed: FiledIssue | None = None
    replaces: str = ""


def thread_id(project: str, item: str) -> str:
    """Identifies an item across the whole fleet, in Temporal and for LangGraph."""
    return f"{project}/{item}"
