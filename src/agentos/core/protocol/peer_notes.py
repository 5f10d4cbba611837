"""What runs on one host tell each other about keys, so that none is used beyond its limits in sum."""

from dataclasses import dataclass, field, replace

from agentos.core.ratelimit.limits import CallCost, LimitSeen, Rate
from agentos.core.ratelimit.provider_profile import Counting


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call began: it holds a slot of its key and counts for its bucket.

    `probed_provider` is the address of the provider that fails for everybody, if it looks whether that is over.
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
    """A call ended: its slot is free, and what it used is known."""

    run: str
    lease: str
    used: CallCost = field(default_factory=CallCost)
    refused: bool = False


@dataclass(frozen=True, slots=True)
class CooldownStarted:
    """A bucket rests: `until` by the host's clock, `exhausted_until` for a day's quota; told at `at`."""

    run: str
    bucket: str
    model: str
    until: float
    exhausted_until: float
    reason: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class CooldownCleared:
    """A call went through in spite of a rest: it is over."""

    run: str
    bucket: str
    model: str


@dataclass(frozen=True, slots=True)
class BucketLimitsLearned:
    """What was told or found out about a bucket's limits, and how its provider counts.

    `window_seconds`: in what time a found rate may be used up; `token_rate`: if tokens were found to be counted, the largest
    call and in what time as many are admitted; `window_start`: when one of the fixed windows begins.
    """

    run: str
    bucket: str
    model: str
    limits: tuple[LimitSeen, ...] = ()
    requests_per_second: float | None = None
    window_seconds: float | None = None
    token_rate: Rate | None = None
    counting: Counting | None = None
    window_start: float = 0.0


@dataclass(frozen=True, slots=True)
class HourUsage:
    """So many calls, the last of them at `at`."""

    at: float
    calls: int


@dataclass(frozen=True, slots=True)
class BucketUsage:
    """The calls of the last day, hour by hour: what is left of those of earlier runs."""

    run: str
    bucket: str
    model: str
    hours: tuple[HourUsage, ...]
    at: float


@dataclass(frozen=True, slots=True)
class KeyRejected:
    """A provider does not take this key: nobody tries it again until its credential changes."""

    run: str
    key: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class QuarantineLifted:
    """A person says, or a call has shown, that a rejected key is a good one."""

    run: str
    key: str


@dataclass(frozen=True, slots=True)
class ProviderFailed:
    """The last so many calls to an address have failed; with `open_until`, nothing is sent there till then."""

    run: str
    provider: str
    failures: int
    open_until: float
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class ProviderRecovered:
    """An address that had failed has answered."""

    run: str
    provider: str


@dataclass(frozen=True, slots=True)
class RunGone:
    """A run has ended, or died: it holds nothing any more."""

    run: str


Note = (
    CallStarted
    | CallEnded
    | CooldownStarted
    | CooldownCleared
    | BucketLimitsLearned
    | BucketUsage
    | KeyRejected
    | QuarantineLifted
    | ProviderFailed
    | ProviderRecovered
    | RunGone
)
# Whose notes were kept when nobody was there.
EARLIER = "earlier"


def shift_times(note: Note, seconds: float) -> Note:
    """The note with its times moved to another clock. 0.0 stands for "none" in `exhausted_until` and `open_until`."""
    match note:
        case CallStarted() | KeyRejected():
            return replace(note, at=note.at + seconds)
        case CooldownStarted():
            exhausted_until = note.exhausted_until + seconds if note.exhausted_until else 0.0
            return replace(
                note, until=note.until + seconds, exhausted_until=exhausted_until, at=note.at + seconds
            )
        case BucketLimitsLearned():
            return replace(note, window_start=note.window_start + seconds)
        case BucketUsage():
            hours = tuple(replace(hour, at=hour.at + seconds) for hour in note.hours)
            return replace(note, hours=hours, at=note.at + seconds)
        case ProviderFailed():
            open_until = note.open_until + seconds if note.open_until else 0.0
            return replace(note, open_until=open_until, at=note.at + seconds)
        case _:
            return note
