"""Events: what happened, in the past tense. Their wire names are in the codec.

One file although it is long: readers look events up by name, and one list shows what exists.
"""

from dataclasses import dataclass, field

from agentos.core.protocol.results import Outcome, Usage
from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal

FORMAT = 2
"""Version of the wire names and fields. Raise it with every change that an older reader would misread."""

# From a worker.


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node of the item's graph started; `round` counts the reviews so far."""

    item: str
    node: str
    round: int


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node finished; its checkpoint is written next."""

    item: str
    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """The item needs a key for one call, named like `draft-1` or `review-2`.

    `providers` and `models` are in order of preference, the token counts are estimates, and `calls_done` says how
    many calls the item has already made. Calls with the same `affinity` prefer the key of the last one: providers
    cache prompts and keep files per account.
    """

    item: str
    call: str
    providers: tuple[str, ...]
    models: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    calls_done: int = 0
    affinity: str = ""


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    """The call is over. `refusal` says why it failed, `limits` are those that the response headers name."""

    item: str
    lease: str
    seconds: float
    usage: Usage = field(default_factory=Usage)
    refusal: Refusal | None = None
    model: str = ""
    limits: tuple[LimitSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRecovered:
    """A stored answer was paid for by `run`, which was killed before it counted the call. It is counted now."""

    item: str
    run: str
    lease: str
    key: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class CallProgress:
    """Tokens are arriving: how many the running call has produced so far. Sent every few seconds at most."""

    item: str
    output_tokens: int


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The item cannot write to `path`. It waits there, with its clock stopped, until there is space."""

    item: str
    path: str


@dataclass(frozen=True, slots=True)
class DiskFreed:
    """The item can write again and continues."""

    item: str


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """The worker reported the item's outcome; its process exits next."""

    item: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """The program that `agentos exec` ran for the item ended; a negative `status` is a signal number."""

    item: str
    status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkspaceSaved:
    """What the program changed is saved: committed on `branch`, or, without a branch, in the copy at `path`.

    `conflicts` names files that cannot be merged into `base` as it is now.
    """

    item: str
    path: str
    branch: str
    base: str
    commits: int
    files: int
    added_lines: int
    removed_lines: int
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyWaitStarted:
    """A program of `agentos exec` waits for a key of the gateway; its clock stops."""

    item: str


@dataclass(frozen=True, slots=True)
class KeyWaitEnded:
    """The program got its key, or gave up."""

    item: str


# From the engine.


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The worker's process exists."""

    item: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The process has exited and its output and channel are read to the end; `clean` if it exited with 0."""

    item: str
    cause: str
    clean: bool


@dataclass(frozen=True, slots=True)
class WorkerStartFailed:
    """No process could be created for the item."""

    item: str
    reason: str


@dataclass(frozen=True, slots=True)
class LineWritten:
    """The worker, or a child process of it, wrote a line to stdout or stderr."""

    item: str
    text: str


# From outside the run.


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop signal arrived, or `agentos stop`; `signal` is a name such as SIGINT."""

    signal: str


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """`agentos pause`. With `now`, workers checkpoint and exit instead of waiting at their next call."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """`agentos resume`."""


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """`agentos retry ITEM`."""

    item: str


@dataclass(frozen=True, slots=True)
class WorkerCountRequested:
    """`agentos set parallel N`; 0 stands for `auto`."""

    workers: int


@dataclass(frozen=True, slots=True)
class ItemJoined:
    """A fleet item was assigned to this worker; `timeout` is the item's own, in seconds of active time."""

    item: str
    timeout: float


@dataclass(frozen=True, slots=True)
class ItemWithdrawn:
    """A fleet item must stop here: it was cancelled, or is already running on another machine."""

    item: str


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """Ctrl-Z: the run and its workers are stopped until the shell continues them."""


@dataclass(frozen=True, slots=True)
class RunContinued:
    """The run was continued (`fg`) after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CredentialsRejected:
    """The credentials file was changed and cannot be used as it is now; the old keys stay in use."""

    reason: str


@dataclass(frozen=True, slots=True)
class ItemDecided:
    """A person decided (`approve`, `send back`, `reject`) on an item that this run had parked."""

    item: str
    action: str


# From the scheduler: what it decided or noticed.


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Always the first event.

    `project_path` is the path from the folder where the command was typed (`cwd`) to the project, empty if they are
    the same. `titles` are in the order of `items`. `skipped` lists files that look like items but are not valid ones.
    `home` is empty unless AGENTOS_HOME moved it. `format` is the version of these records. `code_tokens` is the most
    code that a prompt of this run shows, 0 if none. `auto_workers`: `workers` is only the number to start with
    (`--parallel auto`). `redone` are the items with a verdict that `--fresh` starts over, and `selecting_words`
    the positions of those words of `command` that select its items. `has_review`: the items are expected to end with a
    verdict. `source_tokens` estimates, in the order of `items`, how many tokens each item's text adds to every prompt.
    `machines` is how many machines of a fleet the `workers` are on, None without a fleet.
    """

    run: str
    workflow: str
    project: str
    items: tuple[str, ...]
    workers: int
    keys: tuple[str, ...]
    command: str = ""
    project_path: str = ""
    titles: tuple[str, ...] = ()
    offline: bool = False
    cwd: str = ""
    home: str = ""
    skipped: tuple[str, ...] = ()
    format: int = FORMAT
    code_tokens: int = 0
    auto_workers: bool = False
    redone: tuple[str, ...] = ()
    selecting_words: tuple[int, ...] = ()
    has_review: bool = False
    source_tokens: tuple[int, ...] = ()
    machines: int | None = None


@dataclass(frozen=True, slots=True)
class KeysFewerThanWorkers:
    """The keys allow fewer calls at once than there are workers, so workers will wait for each other.

    `role` and `providers` are set if this holds only for the calls of one role, such as the drafter.
    """

    slots: int
    workers: int
    role: str = ""
    providers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemStarted:
    """A worker is being started for the item."""

    item: str
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ItemRetried:
    """The attempt failed and the item starts again after `seconds`; `attempt` is the number of the next one."""

    item: str
    reason: str
    attempt: int
    max_attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ItemEnded:
    """The item is done for this run. `node` is where a failed or interrupted item stopped.

    `attempts` is 0 for an item that never started. The journal syncs it to disk before any other listener receives it.
    """

    item: str
    outcome: Outcome
    seconds: float
    usage: Usage
    attempts: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class ItemQuiet:
    """The worker has been silent for `seconds`; `level` is SLOW, then STALLED."""

    item: str
    level: str
    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """A key was leased to the item for one call."""

    item: str
    key: str
    lease: str
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class CallCompleted:
    """A call got a response; `cost` in US dollars, None if the price of the model is not known.

    `seconds` and `waited_seconds` are set for a call through the gateway, which has no lease in the run.
    """

    item: str
    key: str
    model: str
    usage: Usage
    cost: float | None = None
    seconds: float = 0.0
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CallCut:
    """No token came within the call timeout. `count` is how often in a row for this call, `usage` what it cost."""

    item: str
    key: str
    model: str
    reason: str
    count: int
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class KeyLimited:
    """The provider refused a call; the key cools down for `seconds`. `is_only_key`: the run has no other key."""

    key: str
    seconds: float
    reason: str
    is_only_key: bool = False


@dataclass(frozen=True, slots=True)
class KeyExhausted:
    """The key's daily quota is used up for `seconds`. `is_only_key`: the run has no other key."""

    key: str
    seconds: float
    reason: str
    is_only_key: bool = False


@dataclass(frozen=True, slots=True)
class KeyQuarantined:
    """The provider rejected the key; it is not used again until its credential changes."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelForbidden:
    """The provider does not let the key use the model; its other models are unaffected."""

    key: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeyRecovered:
    """A key whose daily quota was used up worked again before the quota day ended; it is back in use."""

    key: str


@dataclass(frozen=True, slots=True)
class QuotaShared:
    """Refusals of `key` are explained by calls of `other`: both seem to draw on one quota, which nobody declared."""

    key: str
    other: str


@dataclass(frozen=True, slots=True)
class LimitLearned:
    """The provider named a limit of the key's bucket: `amount` per `seconds`. Calls are throttled to it."""

    key: str
    model: str
    dimension: Dimension
    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """The credentials file was edited; `changed` keys have another limit, bucket or address."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolLow:
    """One usable slot is left; no further item starts while one is running."""

    slots: int


@dataclass(frozen=True, slots=True)
class PoolExhausted:
    """A call is waiting and workers hold every usable slot."""

    waiting: int
    slots: int


@dataclass(frozen=True, slots=True)
class PoolRestored:
    """No call waits any longer; `seconds` since PoolExhausted."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AllKeysLimited:
    """No key can serve; `key` is the first to return, in `seconds`."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KeysAvailable:
    """A key can serve again, `seconds` after AllKeysLimited."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CallsThrottled:
    """Every idle key has reached its rate limit; `key` may send the next call in `seconds`."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    """A model fails for every call; calls to it are held back and a probe follows in `seconds`."""

    provider: str
    reason: str
    seconds: float
    model: str = ""


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    """The model answers again, `seconds` after BreakerOpened."""

    provider: str
    seconds: float
    model: str = ""


@dataclass(frozen=True, slots=True)
class DiskWaitStarted:
    """The first item waits for disk space; no item starts until there is some."""

    path: str


@dataclass(frozen=True, slots=True)
class DiskWaitEnded:
    """No item waits for disk space any longer. `path` is that of the first item that waited."""

    seconds: float
    path: str = ""


@dataclass(frozen=True, slots=True)
class SlotCooldownStarted:
    """Workers crashed three times in a row in this slot; it is used again after `seconds`."""

    slot: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class SlotRetired:
    """The slot kept crashing and is no longer used."""

    slot: int
    slots_left: int


@dataclass(frozen=True, slots=True)
class ShutdownStarted:
    """The run stops early. `reason` is a signal or a limit; `seconds` until the run could continue, if known."""

    reason: str
    detail: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunPaused:
    """The run was paused: no item or call starts. With `now`, workers exit and start again on resume."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class RunResumed:
    """The run continues after a pause of `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ItemSuspended:
    """The worker exited for a pause; the item waits with its checkpoint for the resume."""

    item: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class ItemRequeued:
    """A person asked to retry the failed item, and it is queued again."""

    item: str


@dataclass(frozen=True, slots=True)
class WorkerCountChanged:
    """The number of items that may run at once has changed, or who sets it.

    `auto`: the run sets it, for this `reason`. Otherwise a person set it.
    """

    workers: int
    previous: int
    auto: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RequestDeclined:
    """A request changed nothing, for this `reason`; the command that sent it exits with `exit_code`."""

    reason: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class GatewayExited:
    """The gateway of `agentos exec` exited unexpectedly; `restarting` unless it did so too often."""

    cause: str
    restarting: bool = True


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """The gateway refused a call that would have exceeded the budget; the run stops."""

    detail: str


@dataclass(frozen=True, slots=True)
class GatewayRestored:
    """A new gateway serves at the same address."""


@dataclass(frozen=True, slots=True)
class GatewayWarned:
    """A message of the gateway for people, from its stderr."""

    text: str


@dataclass(frozen=True, slots=True)
class WorkersKilled:
    """The workers of these items were killed: they had not exited in time, or Ctrl-C was pressed twice."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A minute has passed; `seconds` since the start of the run."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Always the last event unless the run was killed; `waited_seconds` is how long all items together waited for keys."""

    exit_code: int
    seconds: float
    waited_seconds: float
    detail: str = ""


WorkerEvent = (
    NodeStarted
    | NodeFinished
    | LeaseRequested
    | LeaseReleased
    | AnswerRecovered
    | CallProgress
    | DiskFull
    | DiskFreed
    | ProgramEnded
    | WorkspaceSaved
    | KeyWaitStarted
    | KeyWaitEnded
    | WorkerReported
)
EngineEvent = WorkerStarted | WorkerExited | WorkerStartFailed | LineWritten
Request = StopRequested | PauseRequested | ResumeRequested | RetryRequested | WorkerCountRequested
ExternalEvent = (
    Request | RunSuspended | RunContinued | CredentialsRejected | ItemDecided | ItemJoined | ItemWithdrawn
)
SchedulerEvent = (
    RunStarted
    | KeysFewerThanWorkers
    | ItemStarted
    | ItemRetried
    | ItemEnded
    | ItemQuiet
    | LeaseGranted
    | CallCompleted
    | CallCut
    | KeyLimited
    | KeyExhausted
    | KeyQuarantined
    | ModelForbidden
    | KeyRecovered
    | LimitLearned
    | QuotaShared
    | KeysChanged
    | PoolLow
    | PoolExhausted
    | PoolRestored
    | AllKeysLimited
    | KeysAvailable
    | CallsThrottled
    | BreakerOpened
    | BreakerClosed
    | DiskWaitStarted
    | DiskWaitEnded
    | SlotCooldownStarted
    | SlotRetired
    | ShutdownStarted
    | RunPaused
    | RunResumed
    | ItemSuspended
    | ItemRequeued
    | WorkerCountChanged
    | RequestDeclined
    | GatewayExited
    | GatewayRestored
    | BudgetReached
    | GatewayWarned
    | WorkersKilled
    | Heartbeat
    | RunEnded
)
Event = WorkerEvent | EngineEvent | ExternalEvent | SchedulerEvent
