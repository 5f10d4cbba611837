"""Facts: what happened, in the past tense."""

# One page, long as it is: it is looked through by name, and cut up each name would stand in three places.

from dataclasses import dataclass, field

from agentos.core.protocol.results import Outcome, Usage
from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal

FORMAT = 2
"""Version of the wire names and fields. Raise it with every change that an older reader would misread."""

# Told by a worker.


@dataclass(frozen=True, slots=True)
class NodeStarted:
    item: str
    node: str
    round: int


@dataclass(frozen=True, slots=True)
class NodeFinished:
    item: str
    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    item: str
    call: str
    providers: tuple[str, ...]
    models: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    calls_done: int = 0


@dataclass(frozen=True, slots=True)
class LeaseReleased:
    item: str
    lease: str
    seconds: float
    usage: Usage = field(default_factory=Usage)
    refusal: Refusal | None = None
    model: str = ""
    limits: tuple[LimitSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskFull:
    """The item waits, as it is, for space on the disk of `path`."""

    item: str
    path: str


@dataclass(frozen=True, slots=True)
class DiskFreed:
    item: str


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """The worker's last word; its process ends after it."""

    item: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """What a worker ran for its item has ended; a negative status is the number of a signal."""

    item: str
    status: int
    seconds: float


# Told by an engine.


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    item: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The process, its output and its channel have all ended."""

    item: str
    cause: str
    clean: bool


@dataclass(frozen=True, slots=True)
class WorkerStartFailed:
    item: str
    reason: str


@dataclass(frozen=True, slots=True)
class LineWritten:
    item: str
    text: str


# Told from outside the run.


@dataclass(frozen=True, slots=True)
class StopRequested:
    signal: str


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """`now`: workers checkpoint and end, instead of waiting at their next call."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    pass


@dataclass(frozen=True, slots=True)
class RetryRequested:
    item: str


@dataclass(frozen=True, slots=True)
class WorkerCountRequested:
    workers: int


@dataclass(frozen=True, slots=True)
class RunSuspended:
    """Ctrl-Z: the run and its workers stand still until its shell continues it."""


@dataclass(frozen=True, slots=True)
class RunContinued:
    seconds: float


@dataclass(frozen=True, slots=True)
class CredentialsRejected:
    """The credentials file was changed, and cannot be used as it is now."""

    reason: str


@dataclass(frozen=True, slots=True)
class ItemDecided:
    """A person has decided on an item that this run had parked."""

    item: str
    action: str


# News: what the run itself decided or noticed.


@dataclass(frozen=True, slots=True)
class RunStarted:
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
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class KeysFewerThanWorkers:
    slots: int
    workers: int


@dataclass(frozen=True, slots=True)
class ItemStarted:
    item: str
    slot: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ItemRetried:
    item: str
    reason: str
    attempt: int
    max_attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ItemEnded:
    """`node` is where a failed or interrupted item stood."""

    item: str
    outcome: Outcome
    seconds: float
    usage: Usage
    attempts: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class ItemQuiet:
    """No sign of life for `seconds`: `level` is SLOW, then STALLED."""

    item: str
    level: str
    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    item: str
    key: str
    lease: str
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class CallCompleted:
    """A call that gave an answer; the cost is None when nobody knows the model's price."""

    item: str
    key: str
    model: str
    usage: Usage
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class KeyLimited:
    key: str
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class KeyExhausted:
    """Exhausted for the day."""

    key: str
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class KeyQuarantined:
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class KeyRecovered:
    key: str


@dataclass(frozen=True, slots=True)
class LimitLearned:
    """The provider has named a limit of the bucket that this key belongs to."""

    key: str
    model: str
    dimension: Dimension
    amount: float
    seconds: float


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """`changed`: another limit, bucket or address."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolLow:
    slots: int


@dataclass(frozen=True, slots=True)
class PoolExhausted:
    waiting: int
    slots: int


@dataclass(frozen=True, slots=True)
class PoolRestored:
    seconds: float


@dataclass(frozen=True, slots=True)
class AllKeysLimited:
    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KeysAvailable:
    """A key can serve again after all were limited."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CallsThrottled:
    """Nobody is served for so long, since every free key is at its limit; then this one can serve."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerOpened:
    provider: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    provider: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DiskWaitStarted:
    path: str


@dataclass(frozen=True, slots=True)
class DiskWaitEnded:
    seconds: float


@dataclass(frozen=True, slots=True)
class SlotCooldownStarted:
    slot: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class SlotRetired:
    slot: int
    slots_left: int


@dataclass(frozen=True, slots=True)
class ShutdownStarted:
    """`reason` is a signal's name, or why the run cannot go on; `seconds` until it could."""

    reason: str
    detail: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunPaused:
    """Somebody has paused it; `now`: its workers end, and are taken up again by a resume."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class RunResumed:
    seconds: float


@dataclass(frozen=True, slots=True)
class ItemSuspended:
    """Its worker has ended for a pause; the item waits, with its checkpoint, for the resume."""

    item: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class ItemRequeued:
    """It had ended without a verdict, and somebody asked for another try."""

    item: str


@dataclass(frozen=True, slots=True)
class WorkerCountChanged:
    workers: int
    previous: int


@dataclass(frozen=True, slots=True)
class RequestDeclined:
    """Why nothing was done; `exit_code` is what whoever asked ends with."""

    reason: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class GatewayExited:
    """The gateway beside the programs is gone, by no wish of the run; `restarting`: another is started in its place."""

    cause: str
    restarting: bool = True


@dataclass(frozen=True, slots=True)
class GatewayRestored:
    """Another gateway serves at the same address."""


@dataclass(frozen=True, slots=True)
class WorkersKilled:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing else was to tell for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RunEnded:
    exit_code: int
    seconds: float
    waited_seconds: float
    detail: str = ""


WorkerEvent = (
    NodeStarted
    | NodeFinished
    | LeaseRequested
    | LeaseReleased
    | DiskFull
    | DiskFreed
    | ProgramEnded
    | WorkerReported
)
EngineEvent = WorkerStarted | WorkerExited | WorkerStartFailed | LineWritten
Request = StopRequested | PauseRequested | ResumeRequested | RetryRequested | WorkerCountRequested
OutsideEvent = Request | RunSuspended | RunContinued | CredentialsRejected | ItemDecided
News = (
    RunStarted
    | KeysFewerThanWorkers
    | ItemStarted
    | ItemRetried
    | ItemEnded
    | ItemQuiet
    | LeaseGranted
    | CallCompleted
    | KeyLimited
    | KeyExhausted
    | KeyQuarantined
    | KeyRecovered
    | LimitLearned
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
    | WorkersKilled
    | Heartbeat
    | RunEnded
)
Event = WorkerEvent | EngineEvent | OutsideEvent | News
