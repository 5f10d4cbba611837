"""What items of earlier runs were like: their calls, and the work between them."""

from dataclasses import dataclass, field, replace

from agentos.core.planning.plan import FINISHED
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage

ModelSet = frozenset[tuple[str, str]]
"""Who may be asked for what: pairs of a provider and a model."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One answered call: the work before it, the wish for a key, how long the key was held, what it used."""

    work_before: float
    request: events.LeaseRequested
    duration: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class ItemTrace:
    """One item from its start to its verdict; `nodes` are numbered by the calls made before each."""

    start: float = 0.0
    calls: tuple[CallTrace, ...] = ()
    after: float = 0.0
    nodes: tuple[tuple[str, int], ...] = ()

    @property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    def remaining_from(self, node: str) -> "ItemTrace":
        """What is left of it for an item that stands at this node."""
        if node == FINISHED:
            return ItemTrace(self.start, (), self.after, self.nodes)
        done = next((calls for name, calls in self.nodes if name == node), 0)
        return ItemTrace(self.start, self.calls[done:], self.after, self.nodes)


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Lives of earlier runs, and how long the first worker of a run takes to be there.

    `pace`: calls per second that the newest run got through, if its calls mostly waited; else None.
    """

    traces: tuple[ItemTrace, ...] = ()
    runs: int = 0
    warm_up: float = 0.0
    calls_per_second: float | None = None

    def whole(self) -> "RunHistory":
        """Without the lives that went on from a checkpoint: they began where others were on the way."""
        later = {name for life in self.traces for name, _ in life.nodes[1:]}
        traces = tuple(life for life in self.traces if life.nodes and life.nodes[0][0] not in later)
        return replace(self, traces=traces)

    def among(self, seats: ModelSet) -> "RunHistory":
        """Only what was asked of models that would be asked now."""
        traces = tuple(life for life in self.traces if all(_models_of(call) <= seats for call in life.calls))
        return replace(self, traces=traces)


def _models_of(call: CallTrace) -> ModelSet:
    return frozenset(zip(call.request.providers, call.request.models, strict=False))


@dataclass(slots=True)
class _OpenTrace:
    """An item under way, as its events tell."""

    started: float
    start: float = 0.0
    since: float | None = None
    worked: float = 0.0
    wanted: float = 0.0
    granted: float = 0.0
    request: events.LeaseRequested | None = None
    calls: list[CallTrace] = field(default_factory=list)
    nodes: list[tuple[str, int]] = field(default_factory=list)
    outcome: Outcome | None = None

    def work(self, at: float) -> None:
        """Up to now it was at work, if it was neither waiting for a key nor calling."""
        if self.since is not None:
            self.worked += at - self.since
        self.since = None


@dataclass(slots=True)
class _QueueStats:
    """The calls of a run, before a key and with one."""

    calls: int = 0
    waited: float = 0.0
    called: float = 0.0
    first: float | None = None
    last: float = 0.0

    def count(self, page: _OpenTrace, at: float) -> None:
        self.calls += 1
        self.waited += page.granted - page.wanted
        self.called += at - page.granted
        self.first = page.wanted if self.first is None else min(self.first, page.wanted)
        self.last = at

    @property
    def pace(self) -> float | None:
        """Of a run whose calls waited longer than they took; others say nothing about what keys allow."""
        if self.first is None or self.waited <= self.called:
            return None
        return self.calls / (self.last - self.first)


class TraceBuilder:
    """Fed with the events of one run, in order; a part of them will do."""

    def __init__(self) -> None:
        self.traces: list[ItemTrace] = []
        self.warm_up = 0.0
        self._began: float | None = None
        self._ready = float("-inf")
        self._open_traces: dict[str, _OpenTrace] = {}
        self._queue = _QueueStats()

    @property
    def pace(self) -> float | None:
        return self._queue.pace

    def handle(self, event: events.Event, at: float) -> None:
        match event:
            case events.RunStarted():
                self._began = at
            case events.ItemStarted():
                self._open_traces[event.item] = _OpenTrace(at)
            case _:
                page = self._open_traces.get(getattr(event, "item", ""))
                if page is not None:
                    self._handle_worker(event, page, at)

    def _handle_worker(self, event: events.Event, page: _OpenTrace, at: float) -> None:
        match event:
            case events.WorkerStarted():
                self._handle_start(page, at)
            case events.NodeStarted():
                page.nodes.append((event.node, len(page.calls)))
            case events.LeaseRequested():
                page.work(at)
                page.request, page.wanted = event, at
            case events.LeaseGranted():
                page.granted = at
            case events.LeaseReleased():
                self._handle_return(event, page, at)
            case events.WorkerReported():
                page.outcome = event.outcome
            case events.WorkerExited():
                self._handle_end(page, at)
            case _:
                pass

    def _handle_start(self, page: _OpenTrace, at: float) -> None:
        page.since = at
        if self._began is not None:
            self.warm_up, self._began, self._ready = at - self._began, None, at
        # The first workers wait for all that is loaded before them; that is the run's time, not theirs.
        page.start = at - max(page.started, self._ready)

    def _handle_return(self, event: events.LeaseReleased, page: _OpenTrace, at: float) -> None:
        if page.request is not None and event.refusal is None and event.usage.calls:
            page.calls.append(CallTrace(page.worked, page.request, at - page.granted, event.usage))
            self._queue.count(page, at)
            page.worked = 0.0
        page.since = at

    def _handle_end(self, page: _OpenTrace, at: float) -> None:
        page.work(at)
        outcome = page.outcome
        if outcome and outcome.ending is Ending.FINISHED and outcome.rounds:
            self.traces.append(ItemTrace(page.start, tuple(page.calls), page.worked, tuple(page.nodes)))
        page.since = None
