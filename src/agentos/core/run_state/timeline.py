"""The timeline of a run: its events as spans of time per item, per key and for the whole run."""

from dataclasses import dataclass, field
from enum import StrEnum

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending

MIN_WAIT = 0.01  # seconds


class SpanKind(StrEnum):
    """In drawing order: later kinds cover earlier ones."""

    ATTEMPT = "running"
    RETRY = "waiting to retry"
    NODE = "node"
    WAIT = "waiting for a key"
    COOLDOWN = "rate limited"
    SPENT = "exhausted for the day"
    QUARANTINE = "quarantined"
    CALL = "call"
    REFUSED = "refused call"
    FAILED = "failed call"
    EXHAUSTED = "pool exhausted"
    LIMITED = "all keys rate limited"
    BREAKER_OPEN = "provider failing"
    PAUSED = "run paused"
    SUSPENDED = "run suspended"


@dataclass(slots=True)
class Span:
    """A span of time. `ended` is None while it lasts; `label` is a node, an item or a reason."""

    kind: SpanKind
    began: float
    ended: float | None = None
    label: str = ""

    def until(self, end: float) -> float:
        """The end to draw on a timeline that ends at `end`."""
        return end if self.ended is None else min(self.ended, end)

    def seconds(self, end: float) -> float:
        return max(0.0, self.until(end) - self.began)


@dataclass(slots=True)
class Lane:
    """The spans of one item, one key or the run, ordered by start."""

    name: str
    spans: list[Span] = field(default_factory=list)

    def open(self, kind: SpanKind, at: float, label: str = "") -> Span:
        self.spans.append(Span(kind, at, None, label))
        return self.spans[-1]

    def close(self, at: float, *kinds: SpanKind) -> None:
        """End the open spans of these kinds, or all of them."""
        for span in self.spans:
            if span.ended is None and (not kinds or span.kind in kinds):
                span.ended = at
        self.spans = [span for span in self.spans if not _too_short(span)]

    def close_labelled(self, at: float, kind: SpanKind, label: str) -> None:
        """End the open span of this kind with this label: several models may be failing at the same time."""
        for span in self.of(kind):
            if span.ended is None and span.label == label:
                span.ended = at

    def of(self, *kinds: SpanKind) -> list[Span]:
        return [span for span in self.spans if span.kind in kinds]

    def layers(self) -> list[Span]:
        """The spans in drawing order."""
        return sorted(self.spans, key=lambda span: _ORDER.index(span.kind))


@dataclass(slots=True)
class Timeline:
    """Pass every event of a run to `handle`, in order and with times that never decrease."""

    began: float = 0.0
    last: float = 0.0
    items: dict[str, Lane] = field(default_factory=dict)
    keys: dict[str, Lane] = field(default_factory=dict)
    run: Lane = field(default_factory=lambda: Lane("run"))
    _calls: dict[str, tuple[str, Span]] = field(default_factory=dict)

    def handle(self, event: events.Event, at: float) -> None:
        self.began = self.began or at
        self.last = at
        match event:
            case events.RunStarted():
                self.items = {item: Lane(item) for item in event.items}
                self.keys = {key: Lane(key) for key in event.keys}
            case events.RunEnded():
                for lane in (*self.items.values(), *self.keys.values(), self.run):
                    lane.close(at)
            case _:
                self._handle_item(event, at)
                self._handle_lease(event, at)
                self._handle_key(event, at)
                self._handle_run(event, at)

    def _handle_item(self, event: events.Event, at: float) -> None:
        match event:
            case events.ItemStarted():
                lane = self._item(event.item)
                lane.close(at)
                lane.open(SpanKind.ATTEMPT, at, f"attempt {event.attempt}")
            case events.NodeStarted():
                lane = self._item(event.item)
                lane.close(at, SpanKind.NODE)
                lane.open(SpanKind.NODE, at, event.node)
            case events.NodeFinished():
                self._item(event.item).close(at, SpanKind.NODE)
            case events.WorkerExited() | events.WorkerStartFailed():
                self._leave(event.item, at)
            case events.ItemRetried():
                self._leave(event.item, at)
                self._item(event.item).open(SpanKind.RETRY, at, event.reason)
            case events.ItemEnded() if event.outcome.ending is not Ending.INTERRUPTED or event.attempts:
                self._leave(event.item, at)
            case _:
                pass

    def _handle_lease(self, event: events.Event, at: float) -> None:
        match event:
            case events.LeaseRequested():
                self._item(event.item).open(SpanKind.WAIT, at, event.call)
            case events.KeyWaitStarted():
                self._item(event.item).open(SpanKind.WAIT, at, "call")
            case events.KeyWaitEnded():
                self._item(event.item).close(at, SpanKind.WAIT)
            case events.LeaseGranted():
                self._item(event.item).close(at, SpanKind.WAIT)
                span = self._key(event.key).open(SpanKind.CALL, at, event.item)
                self._calls[event.lease] = (event.item, span)
            case events.LeaseReleased() if event.lease in self._calls:
                _, span = self._calls.pop(event.lease)
                span.ended = at
                if event.refusal:
                    span.kind = SpanKind.FAILED if event.refusal.kind.is_failure else SpanKind.REFUSED
            case _:
                pass

    def _handle_key(self, event: events.Event, at: float) -> None:
        match event:
            case events.KeyLimited():
                self._key(event.key).open(SpanKind.COOLDOWN, at, event.reason).ended = at + event.seconds
            case events.KeyExhausted():
                self._key(event.key).open(SpanKind.SPENT, at, event.reason).ended = at + event.seconds
            case events.KeyQuarantined():
                self._key(event.key).open(SpanKind.QUARANTINE, at, event.reason)
            case events.KeyRecovered():
                for span in self._key(event.key).of(SpanKind.COOLDOWN, SpanKind.SPENT):
                    span.ended = min(span.until(at), at)
            case events.KeysChanged():
                for key in (*event.added, *event.removed, *event.enabled, *event.changed):
                    self._key(key).close(at, SpanKind.QUARANTINE)
            case _:
                pass

    def _handle_run(self, event: events.Event, at: float) -> None:
        begun, ended = _BEGUN_BY.get(type(event)), _ENDED_BY.get(type(event))
        label = getattr(event, "key", "")
        if isinstance(event, events.BreakerOpened | events.BreakerClosed):
            label = f"{event.provider} {event.model}".rstrip()
        if isinstance(event, events.BreakerClosed):
            self.run.close_labelled(at, SpanKind.BREAKER_OPEN, label)
        elif ended:
            self.run.close(at, ended)
        one_at_a_time = begun is not SpanKind.BREAKER_OPEN
        if begun and not any(
            span.ended is None and (one_at_a_time or span.label == label) for span in self.run.of(begun)
        ):
            self.run.open(begun, at, label)

    def _leave(self, item: str, at: float) -> None:
        """The item's worker has exited: end its spans and release its key."""
        self._item(item).close(at)
        for lease in [lease for lease, (holder, _) in self._calls.items() if holder == item]:
            self._calls.pop(lease)[1].ended = at

    def _item(self, name: str) -> Lane:
        return self.items.setdefault(name, Lane(name))

    def _key(self, name: str) -> Lane:
        return self.keys.setdefault(name, Lane(name))


_ORDER = tuple(SpanKind)
# The events that begin and end the spans of the whole run.
_BEGUN_BY: dict[type, SpanKind] = {
    events.PoolExhausted: SpanKind.EXHAUSTED,
    events.AllKeysLimited: SpanKind.LIMITED,
    events.BreakerOpened: SpanKind.BREAKER_OPEN,
    events.RunPaused: SpanKind.PAUSED,
    events.RunSuspended: SpanKind.SUSPENDED,
}
_ENDED_BY: dict[type, SpanKind] = {
    events.PoolRestored: SpanKind.EXHAUSTED,
    events.KeysAvailable: SpanKind.LIMITED,
    events.RunResumed: SpanKind.PAUSED,
    events.RunContinued: SpanKind.SUSPENDED,
}


def _too_short(span: Span) -> bool:
    """A lease granted at once leaves no waiting span."""
    return span.kind is SpanKind.WAIT and span.ended is not None and span.seconds(span.ended) < MIN_WAIT
