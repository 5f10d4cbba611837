"""What of the notes is worth keeping when nobody is there any more."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentos.core.constants import DAY
from agentos.core.protocol.peer_notes import (
    EARLIER,
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
)

RECENT = 61.0
HOUR = 3600.0
Place = tuple[str, str]


@dataclass(slots=True)
class NoteCompactor:
    """What was learnt, what rests, and what counts on; `ahead` is the wall's clock before the host's."""

    now: float
    ahead: float
    _calls: dict[Place, tuple[CallStarted, CallEnded]] = field(default_factory=dict)
    _used: dict[Place, dict[int, HourUsage]] = field(default_factory=dict)
    _rests: dict[Place, CooldownStarted] = field(default_factory=dict)
    _findings: dict[Place, BucketLimitsLearned] = field(default_factory=dict)
    _rejected: dict[str, KeyRejected] = field(default_factory=dict)
    _storms: dict[str, ProviderFailed] = field(default_factory=dict)

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
                place = (note.bucket, note.model)
                self._findings[place] = _together(self._findings.get(place, note), note)
            case _:
                self._add_state(note)

    def _add_state(self, note: Note) -> None:
        """What holds until it is taken back, or over."""
        match note:
            case CooldownStarted() if max(note.until, note.exhausted_until) > self.now:
                self._rests[note.bucket, note.model] = note
            case CooldownCleared():
                self._rests.pop((note.bucket, note.model), None)
            case KeyRejected() if note.at > self.now - HOUR:
                self._rejected[note.key] = note
            case QuarantineLifted():
                self._rejected.pop(note.key, None)
            case ProviderFailed() if note.open_until > self.now:
                self._storms[note.provider] = note
            case ProviderRecovered():
                self._storms.pop(note.provider, None)
            case _:
                pass

    def notes(self) -> list[Note]:
        """In an order that can be heard: limits before what was used of them."""
        return [replace(note, run=EARLIER) for note in (*self.known(), *self._recent())]

    def known(self) -> list[Note]:
        """All but the calls that still count for a minute's limit."""
        for sent, over in self._calls.values():
            if sent.at <= self.now - RECENT and not over.refused:
                self._count((sent.bucket, sent.model), sent.at, 1)
        self._calls = {place: call for place, call in self._calls.items() if call[0].at > self.now - RECENT}
        used = [
            BucketUsage(EARLIER, *place, tuple(sorted(hours.values(), key=lambda hour: hour.at)), self.now)
            for place, hours in self._used.items()
        ]
        states = (self._rests, self._rejected, self._storms)
        return [*self._findings.values(), *used, *(note for state in states for note in state.values())]

    def _recent(self) -> Iterable[Note]:
        return (note for call in self._calls.values() for note in call)

    def _count(self, place: Place, at: float, calls: int) -> None:
        """By the hours of the wall: a provider's day begins with one of them."""
        if at <= self.now - DAY:
            return
        hours = self._used.setdefault(place, {})
        number = int((at + self.ahead) // HOUR)
        before = hours.get(number, HourUsage(at, 0))
        hours[number] = HourUsage(max(at, before.at), before.calls + calls)


def _together(earlier: BucketLimitsLearned, later: BucketLimitsLearned) -> BucketLimitsLearned:
    """What both have to say; of two things about the same, the later."""
    limits = {limit.dimension: limit for limit in (*earlier.limits, *later.limits)}
    found = earlier if later.requests_per_second is None else later
    counted = earlier if later.counting is None else later
    return replace(
        later,
        limits=tuple(limits.values()),
        requests_per_second=found.requests_per_second,
        window_seconds=found.window_seconds,
        token_rate=found.token_rate,
        counting=counted.counting,
        window_start=counted.window_start,
    )
