"""The history of one item in one run: its calls, attempts and retries."""

from dataclasses import dataclass, field

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage


@dataclass(slots=True)
class ItemCall:
    """One request for a key and its result. Times are wall times; None: not yet."""

    call: str
    requested: float
    granted: float | None = None
    ended: float | None = None
    key: str = ""
    model: str = ""
    waited_seconds: float = 0.0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    is_completed: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ItemRetry:
    """A failed attempt: why, and which attempt comes next."""

    at: float
    reason: str
    attempt: int
    max_attempts: int
    seconds: float


@dataclass(slots=True)
class ItemHistory:
    """Pass the events of one item to `handle`, in order."""

    item: str
    calls: list[ItemCall] = field(default_factory=list)
    retries: list[ItemRetry] = field(default_factory=list)
    _waiting: ItemCall | None = None
    _leases: dict[str, ItemCall] = field(default_factory=dict)

    def handle(self, event: events.Event, at: float) -> None:
        if getattr(event, "item", None) != self.item:
            return
        match event:
            case events.LeaseRequested():
                self._waiting = ItemCall(event.call, at)
                self.calls.append(self._waiting)
            case events.LeaseGranted():
                self._handle_grant(event, at)
            case events.LeaseReleased():
                self._handle_release(event, at)
            case events.CallCompleted():
                self._handle_completion(event, at)
            case events.ItemRetried():
                retry = ItemRetry(at, event.reason, event.attempt, event.max_attempts, event.seconds)
                self.retries.append(retry)
            case _:
                pass

    def _handle_grant(self, event: events.LeaseGranted, at: float) -> None:
        """After a refusal the same request gets another key, without asking again."""
        record = self._waiting
        if record is None or record.granted is not None:
            name = self.calls[-1].call if self.calls else ""
            record = ItemCall(name, at - event.waited_seconds)
            self.calls.append(record)
        record.granted, record.key, record.waited_seconds = at, event.key, event.waited_seconds
        self._leases[event.lease] = record

    def _handle_release(self, event: events.LeaseReleased, at: float) -> None:
        if record := self._leases.pop(event.lease, None):
            record.ended, record.seconds, record.usage = at, event.seconds, event.usage
            record.model = event.model or record.model
            record.refusal = event.refusal.reason if event.refusal else ""

    def _handle_completion(self, event: events.CallCompleted, at: float) -> None:
        """The cost, which the scheduler adds right before or after the release of the lease.

        A call through the gateway has no lease here: this event is all that is known of it.
        """
        for record in reversed(self.calls):
            if record.key == event.key and not record.is_completed and not record.refusal:
                record.cost, record.model, record.is_completed = event.cost, event.model, True
                return
        began = at - event.seconds
        self.calls.append(
            ItemCall(
                f"call-{len(self.calls) + 1}",
                requested=began,
                granted=began + event.waited_seconds,
                ended=at,
                key=event.key,
                model=event.model,
                waited_seconds=event.waited_seconds,
                seconds=event.seconds - event.waited_seconds,
                usage=event.usage,
                cost=event.cost,
                is_completed=True,
            )
        )
