"""Notes that the runs on one host write for each other, so that together they respect the limits of each key."""

from dataclasses import dataclass, field, replace

from agentos.core.ratelimit.limits import CallCost, Counting, LearnedLimits, LimitSeen


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call started: it holds a slot of its key and counts towards its bucket's limits.

    `probed_provider` is set if the call probes a provider whose circuit breaker is open.
    """

    run: str
    lease: str
    key: str
    bucket: str
    model: str
    at: float
    cost: CallCost
    probed_provider: str = ""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call ended: its slot is free and its usage is known."""

    run: str
    lease: str
    used: CallCost = field(default_factory=CallCost)
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CooldownStarted:
    """A bucket cools down `until` then (host clock), or `exhausted_until` if its daily quota is used up.

    With `no_access` it may not use the model at all.
    """

    run: str
    bucket: str
    model: str
    until: float
    exhausted_until: float
    reason: str
    at: float = 0.0
    no_access: bool = False


@dataclass(frozen=True, slots=True)
class CooldownCleared:
    """A call succeeded during a cooldown, which is therefore over."""

    run: str
    bucket: str
    model: str


@dataclass(frozen=True, slots=True)
class BucketLimitsLearned:
    """Limits of a bucket that its provider named (`limits`) or that were found from refusals (`learned`).

    `counting` is how the provider counts limits that are known, `window_start` when one of its fixed windows starts.
    Times are by the host's clock.
    """

    run: str
    bucket: str
    model: str
    limits: tuple[LimitSeen, ...] = ()
    learned: LearnedLimits | None = None
    counting: Counting | None = None
    window_start: float | None = None


@dataclass(frozen=True, slots=True)
class BucketLimitsForgotten:
    """A person has dropped what was learned about a bucket, for all models: it is learned again."""

    run: str
    bucket: str


@dataclass(frozen=True, slots=True)
class QuotaSharingFound:
    """Two buckets seem to share one quota: this many refusals of either are explained by calls of the other alone."""

    run: str
    bucket: str
    other: str
    at: float
    refusals: int


@dataclass(frozen=True, slots=True)
class HourUsage:
    """The calls of one hour; `at` is the time of the last one."""

    at: float
    calls: int


@dataclass(frozen=True, slots=True)
class BucketUsage:
    """The calls of the last day by hour: the compacted notes of earlier runs."""

    run: str
    bucket: str
    model: str
    hours: tuple[HourUsage, ...]
    at: float


@dataclass(frozen=True, slots=True)
class KeyRejected:
    """The provider rejected the key: no run uses it again until its credential changes."""

    run: str
    key: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class QuarantineLifted:
    """A person or a successful call has cleared a rejected key."""

    run: str
    key: str


@dataclass(frozen=True, slots=True)
class ProviderFailed:
    """The last `failures` calls to this model failed; with `open_until`, its breaker is open until then.

    `provider` is the provider's address.
    """

    run: str
    provider: str
    failures: int
    open_until: float
    reason: str
    at: float
    model: str = ""


@dataclass(frozen=True, slots=True)
class ProviderRecovered:
    """A model that had failed has answered again."""

    run: str
    provider: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class RunGone:
    """A run has ended or died and no longer holds any lease."""

    run: str


Note = (
    CallStarted
    | CallEnded
    | CooldownStarted
    | CooldownCleared
    | BucketLimitsLearned
    | BucketLimitsForgotten
    | QuotaSharingFound
    | BucketUsage
    | KeyRejected
    | QuarantineLifted
    | ProviderFailed
    | ProviderRecovered
    | RunGone
)
# The `run` of notes that were kept from runs that are over.
EARLIER = "earlier"


def shift_times(note: Note, seconds: float) -> Note:
    """The note with its times moved to another clock. 0.0 stands for "none" in `exhausted_until` and `open_until`."""
    match note:
        case CallStarted() | KeyRejected() | QuotaSharingFound():
            return replace(note, at=note.at + seconds)
        case CooldownStarted():
            exhausted_until = note.exhausted_until + seconds if note.exhausted_until else 0.0
            return replace(
                note, until=note.until + seconds, exhausted_until=exhausted_until, at=note.at + seconds
            )
        case BucketLimitsLearned():
            start = None if note.window_start is None else note.window_start + seconds
            learned = None if note.learned is None else note.learned.shifted(seconds)
            return replace(note, learned=learned, window_start=start)
        case BucketUsage():
            hours = tuple(replace(hour, at=hour.at + seconds) for hour in note.hours)
            return replace(note, hours=hours, at=note.at + seconds)
        case ProviderFailed():
            open_until = note.open_until + seconds if note.open_until else 0.0
            return replace(note, open_until=open_until, at=note.at + seconds)
        case _:
            return note
