"""Reduces the notes of a peer log to those that still matter once all runs have ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentos.core.constants import DAY
from agentos.core.protocol.peer_notes import (
    EARLIER,
    BucketLimitsForgotten,
    BucketLimitsLearned,
    BucketUsage,
    CallEnded,
    CallStarted,
    CooldownCleared,
    CooldownStarted,
    HourUsage,
    KeyRejected,
    Note,
    ProviderFailed,
    ProviderRecovered,
    QuarantineLifted,
    QuotaSharingFound,
)

RECENT = 61.0  # seconds; older calls no longer count towards a limit per minute
HOUR = 3600.0  # seconds
_Lease = tuple[str, str]
"""Run and lease id."""
_BucketModel = tuple[str, str]
"""Bucket and model."""


@dataclass(slots=True)
class NoteCompactor:
    """Collects notes and returns a shorter list that has the same effect on a pool.

    It keeps learned limits, cooldowns and quarantines that are still in effect, and the usage of the last day: recent
    calls one by one, earlier ones as a count per hour. `wall_offset` is the wall clock minus the host clock.
    """

    now: float
    wall_offset: float
    _calls: dict[_Lease, tuple[CallStarted, CallEnded]] = field(default_factory=dict)
    _usage: dict[_BucketModel, dict[int, HourUsage]] = field(default_factory=dict)
    _cooldowns: dict[_BucketModel, CooldownStarted] = field(default_factory=dict)
    _limits: dict[_BucketModel, BucketLimitsLearned] = field(default_factory=dict)
    _shared: dict[frozenset[str], QuotaSharingFound] = field(default_factory=dict)
    _rejected: dict[str, KeyRejected] = field(default_factory=dict)
    _failing: dict[tuple[str, str], ProviderFailed] = field(default_factory=dict)

    def add(self, note: Note) -> None:
        match note:
            case CallStarted() if note.at > self.now - DAY:
                lease = f"{note.run} {note.lease}"
                self._calls[note.run, note.lease] = replace(note, lease=lease), CallEnded("", lease)
            case CallEnded() if (note.run, note.lease) in self._calls:
                sent, over = self._calls[note.run, note.lease]
                self._calls[note.run, note.lease] = sent, replace(over, used=note.used, refused=note.refused)
            case BucketUsage():
                for hour in note.hours:
                    self._count((note.bucket, note.model), hour.at, hour.calls)
            case BucketLimitsLearned():
                bucket = (note.bucket, note.model)
                self._limits[bucket] = _merge(self._limits.get(bucket, note), note)
            case BucketLimitsForgotten():
                self._limits = {key: kept for key, kept in self._limits.items() if key[0] != note.bucket}
                self._shared = {pair: kept for pair, kept in self._shared.items() if note.bucket not in pair}
            case QuotaSharingFound():
                self._shared.setdefault(frozenset((note.bucket, note.other)), note)
            case _:
                self._add_state(note)

    def _add_state(self, note: Note) -> None:
        """Add a note that remains in effect until it expires or another note cancels it."""
        match note:
            case CooldownStarted() if max(note.until, note.exhausted_until) > self.now:
                self._cooldowns[note.bucket, note.model] = note
            case CooldownCleared():
                self._cooldowns.pop((note.bucket, note.model), None)
            case KeyRejected() if note.at > self.now - HOUR:
                self._rejected[note.key] = note
            case QuarantineLifted():
                self._rejected.pop(note.key, None)
            case ProviderFailed() if note.open_until > self.now:
                self._failing[note.provider, note.model] = note
            case ProviderRecovered():
                self._failing.pop((note.provider, note.model), None)
            case _:
                pass

    def notes(self) -> list[Note]:
        """The compacted notes in an order that can be replayed: limits before the usage that counts towards them."""
        return [replace(note, run=EARLIER) for note in (*self.known(), *self._recent())]

    def known(self) -> list[Note]:
        """Everything except the recent calls."""
        for sent, over in self._calls.values():
            if sent.at <= self.now - RECENT and not over.refused:
                self._count((sent.bucket, sent.model), sent.at, 1)
        self._calls = {lease: call for lease, call in self._calls.items() if call[0].at > self.now - RECENT}
        used = [
            BucketUsage(EARLIER, *bucket, tuple(sorted(hours.values(), key=lambda hour: hour.at)), self.now)
            for bucket, hours in self._usage.items()
        ]
        states = (self._cooldowns, self._rejected, self._failing)
        shared = self._shared.values()
        return [
            *self._limits.values(),
            *shared,
            *used,
            *(note for state in states for note in state.values()),
        ]

    def _recent(self) -> Iterable[Note]:
        return (note for call in self._calls.values() for note in call)

    def _count(self, bucket: _BucketModel, at: float, calls: int) -> None:
        """Count by hours of the wall clock, because a provider's quota day starts on the hour."""
        if at <= self.now - DAY:
            return
        hours = self._usage.setdefault(bucket, {})
        hour = int((at + self.wall_offset) // HOUR)
        before = hours.get(hour, HourUsage(at, 0))
        hours[hour] = HourUsage(max(at, before.at), before.calls + calls)


def _merge(earlier: BucketLimitsLearned, later: BucketLimitsLearned) -> BucketLimitsLearned:
    """Combine two findings about one bucket; where both say something, the later one wins."""
    limits = {limit.dimension: limit for limit in (*earlier.limits, *later.limits)}
    learned = earlier.learned if later.learned is None else later.learned
    counting = earlier if later.counting is None else later
    return replace(
        later,
        limits=tuple(limits.values()),
        learned=learned,
        counting=counting.counting,
        window_start=counting.window_start,
    )
