"""The history of earlier runs as item traces: the calls of each item and the work between them."""

from dataclasses import dataclass, field, replace

from agentos.core.planning.items import FINISHED
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage

ModelSet = frozenset[tuple[str, str]]
"""Pairs of a provider and a model."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """One answered call: seconds of work before it, its lease request, its duration in seconds, its usage."""

    work_before: float
    request: events.LeaseRequested
    duration: float
    usage: Usage

    def with_input(self, tokens: int) -> "CallTrace":
        """The same call with this many more tokens in its prompt, or fewer if the number is negative."""
        usage = self.usage
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        return replace(
            self,
            request=replace(self.request, input_tokens=max(0, self.request.input_tokens + tokens)),
            usage=replace(usage, input_tokens=max(cached, usage.input_tokens + tokens)),
        )


@dataclass(frozen=True, slots=True)
class ItemTrace:
    """One item from its start to its verdict, in seconds without waiting for keys.

    `start` is the start-up time of its worker, `after` the work after the last call. `nodes` pairs each node with the
    number of calls made before it.
    """

    start: float = 0.0
    calls: tuple[CallTrace, ...] = ()
    after: float = 0.0
    nodes: tuple[tuple[str, int], ...] = ()
    code_tokens: int = 0
    """The most code that a prompt of the item's run could contain."""
    source_tokens: int | None = None
    """How many tokens the item's text added to every prompt; None if unknown."""

    @property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    def with_code(self, code_tokens: int) -> "ItemTrace":
        """The trace as if every prompt contained at least this much code."""
        more = code_tokens - self.code_tokens
        if more <= 0:
            return self
        return replace(self, calls=tuple(call.with_input(more) for call in self.calls))

    def with_source(self, source_tokens: int) -> "ItemTrace":
        """The trace as if the item's text added this many tokens to every prompt."""
        if self.source_tokens in (None, source_tokens):
            return self
        more = source_tokens - (self.source_tokens or 0)
        return replace(
            self, source_tokens=source_tokens, calls=tuple(call.with_input(more) for call in self.calls)
        )

    def remaining_from(self, node: str) -> "ItemTrace":
        """The rest of the trace, for an item whose checkpoint is at this node."""
        if node == FINISHED:
            return replace(self, calls=())
        done = next((calls for name, calls in self.nodes if name == node), 0)
        return replace(self, calls=self.calls[done:])


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The item traces of earlier runs.

    `warm_up`: seconds until the first worker of a run has started. `calls_per_second`: the throughput of the newest
    run, if its calls mostly waited for keys; else None.
    """

    traces: tuple[ItemTrace, ...] = ()
    runs: int = 0
    warm_up: float = 0.0
    calls_per_second: float | None = None

    def complete(self) -> "RunHistory":
        """Only the items that ran from start to finish, not those that resumed from a checkpoint."""
        later_nodes = {name for trace in self.traces for name, _ in trace.nodes[1:]}
        traces = tuple(trace for trace in self.traces if trace.nodes and trace.nodes[0][0] not in later_nodes)
        return replace(self, traces=traces)

    def with_code(self, code_tokens: int) -> "RunHistory":
        """The same items with at least this much code in every prompt, so that a forecast is not too low."""
        return replace(self, traces=tuple(trace.with_code(code_tokens) for trace in self.traces))

    def using_only(self, models: ModelSet) -> "RunHistory":
        """Only the items whose calls all asked for these models."""
        traces = tuple(
            trace for trace in self.traces if all(_models_of(call) <= models for call in trace.calls)
        )
        return replace(self, traces=traces)


def _models_of(call: CallTrace) -> ModelSet:
    return frozenset(zip(call.request.providers, call.request.models, strict=False))


@dataclass(slots=True)
class _OpenTrace:
    """The trace of an item that is still running."""

    item_started: float
    start: float = 0.0
    working_since: float | None = None
    """None while the item waits for a key or for a model's answer."""
    worked: float = 0.0
    requested_at: float = 0.0
    granted_at: float = 0.0
    request: events.LeaseRequested | None = None
    calls: list[CallTrace] = field(default_factory=list)
    nodes: list[tuple[str, int]] = field(default_factory=list)
    outcome: Outcome | None = None

    def stop_working(self, at: float) -> None:
        if self.working_since is not None:
            self.worked += at - self.working_since
        self.working_since = None


@dataclass(slots=True)
class _CallStats:
    """How long the calls of a run waited for a key and how long they took."""

    calls: int = 0
    waited: float = 0.0
    called: float = 0.0
    first: float | None = None
    last: float = 0.0

    def count(self, trace: _OpenTrace, at: float) -> None:
        self.calls += 1
        self.waited += trace.granted_at - trace.requested_at
        self.called += at - trace.granted_at
        self.first = trace.requested_at if self.first is None else min(self.first, trace.requested_at)
        self.last = at

    @property
    def calls_per_second(self) -> float | None:
        """None if calls took longer than they waited: then the keys were not the bottleneck."""
        if self.first is None or self.waited <= self.called:
            return None
        return self.calls / (self.last - self.first)


class TraceBuilder:
    """Builds the item traces of one run from its events, in order; the journal may be incomplete."""

    def __init__(self) -> None:
        self.traces: list[ItemTrace] = []
        self.warm_up = 0.0
        self._run_started: float | None = None
        self._code_tokens = 0
        self._source_tokens: dict[str, int] = {}
        self._warm_at = float("-inf")
        self._open_traces: dict[str, _OpenTrace] = {}
        self._call_stats = _CallStats()

    @property
    def calls_per_second(self) -> float | None:
        return self._call_stats.calls_per_second

    def handle(self, event: events.Event, at: float) -> None:
        match event:
            case events.RunStarted():
                self._run_started = at
                self._code_tokens = event.code_tokens
                self._source_tokens = dict(zip(event.items, event.source_tokens, strict=False))
            case events.ItemStarted():
                self._open_traces[event.item] = _OpenTrace(at)
            case _:
                trace = self._open_traces.get(getattr(event, "item", ""))
                if trace is not None:
                    self._handle_item_event(event, trace, at)

    def _handle_item_event(self, event: events.Event, trace: _OpenTrace, at: float) -> None:
        match event:
            case events.WorkerStarted():
                self._handle_start(trace, at)
            case events.NodeStarted():
                trace.nodes.append((event.node, len(trace.calls)))
            case events.LeaseRequested():
                trace.stop_working(at)
                trace.request, trace.requested_at = event, at
            case events.LeaseGranted():
                trace.granted_at = at
            case events.LeaseReleased():
                self._handle_release(event, trace, at)
            case events.WorkerReported():
                trace.outcome = event.outcome
            case events.WorkerExited():
                self._handle_exit(event.item, trace, at)
            case _:
                pass

    def _handle_start(self, trace: _OpenTrace, at: float) -> None:
        trace.working_since = at
        if self._run_started is not None:
            self.warm_up, self._run_started, self._warm_at = at - self._run_started, None, at
        # The warm-up of the run delays its first workers; it is not part of their own start-up time.
        trace.start = at - max(trace.item_started, self._warm_at)

    def _handle_release(self, event: events.LeaseReleased, trace: _OpenTrace, at: float) -> None:
        if trace.request is not None and event.refusal is None and event.usage.calls:
            trace.calls.append(CallTrace(trace.worked, trace.request, at - trace.granted_at, event.usage))
            self._call_stats.count(trace, at)
            trace.worked = 0.0
        trace.working_since = at

    def _handle_exit(self, item: str, trace: _OpenTrace, at: float) -> None:
        trace.stop_working(at)
        outcome = trace.outcome
        if outcome and outcome.ending is Ending.FINISHED and outcome.rounds:
            self.traces.append(
                ItemTrace(
                    trace.start,
                    tuple(trace.calls),
                    trace.worked,
                    tuple(trace.nodes),
                    self._code_tokens,
                    self._source_tokens.get(item),
                )
            )
