"""The task of a worker: everything it receives when it starts."""

from dataclasses import dataclass

from agentos.core.planning.gates import Gate
from agentos.core.planning.items import Item
from agentos.core.text.secrets import Secret


@dataclass(frozen=True, slots=True)
class RoleModel:
    """The models of one role: providers in order of preference, and the model to use with each.

    `max_output_tokens` limits each answer, `effort` says how much the model thinks; empty is the provider's default.
    """

    role: str
    providers: tuple[str, ...]
    models: tuple[str, ...]
    max_output_tokens: int | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class CallTimeout:
    """How long a call to the model may go without receiving a token; an empty name stands for all other models."""

    model: str
    seconds: float


@dataclass(frozen=True, slots=True)
class GitHubAccess:
    """The GitHub repository of the project. The token is sent only through the worker's channel."""

    repository: str
    base_url: str
    token: Secret
    max_wait: float = 3600.0


@dataclass(frozen=True, slots=True)
class FiledIssue:
    """The address of the item's existing issue, if any, and the time from which to search for others.

    `index` is the file with all earlier issues of the repository.
    """

    address: str
    since: str
    index: str = ""


@dataclass(frozen=True, slots=True)
class CodeAccess:
    """The index of the project's code: where it is, which snapshot to read, and how much of it to show.

    `commit` is empty for a project that is not under git. `named` are the files that are shown whole.
    """

    index: str
    snapshot: str
    commit: str
    tokens: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the program; its value may be a secret."""

    name: str
    value: Secret


@dataclass(frozen=True, slots=True)
class FleetTask:
    """Where an item of a fleet is kept, and the claim with which its worker may write. The connection string may hold a
    password; it is sent only through the worker's channel.

    claim: submission, turn and attempt; a greater one outranks it.
    key: identifies the item on its machine, where several projects may have an LLD-42.
    inputs: files of the project that the item needs, by path: its source, the project's own prompts.
    account: identifies its submission at the gateway, where all of the submission's calls may cost `budget` US dollars.
    trace: the trace to which the item's calls belong; empty if there is none.
    replaces: the fingerprint of the approved documents in the project that the item replaces; empty if there are none.
    """

    conninfo: Secret
    thread_id: str
    claim: tuple[int, int, int]
    machine: str
    key: str
    inputs: tuple[tuple[str, str], ...] = ()
    account: str = ""
    budget: float | None = None
    trace: str = ""
    replaces: str = ""

    def files(self) -> dict[str, bytes]:
        return {path: text.encode("utf-8", "surrogateescape") for path, text in self.inputs}


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
    call_timeouts: tuple[CallTimeout, ...] = ()
    locks: str = ""  # a folder in the home; empty: the project's locks alone
    code: CodeAccess | None = None
    store: str = ""  # LangGraph's store, a file in the home
    variables: tuple[Variable, ...] = ()
    gateway: str = ""  # its URL; empty: none
    fleet: FleetTask | None = None
    runs: str = ""  # the folder with the journals of all runs; empty: not on this machine
