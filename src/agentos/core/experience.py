"""What items of earlier runs were like: their calls, and the work between them."""

from dataclasses import dataclass, field, replace

from agentos.core import events
from agentos.core.plan import FINISHED
from agentos.core.results import Ending, Outcome, Usage

Seats = frozenset[tuple[str, str]]
"""Who may be asked for what: pairs of a provider and a model."""


@dataclass(frozen=True, slots=True)
class Call:
    """One answered call: the work before it, the wish for a key, how long the key was held, what it used."""

    before: float
    wish: events.LeaseWanted
    seconds: float
    usage: Usage


@dataclass(frozen=True, slots=True)
class Life:
    """One item from its start to its verdict; `nodes` are numbered by the calls made before each."""

    start: float = 0.0
    calls: tuple[Call, ...] = ()
    after: float = 0.0
    nodes: tuple[tuple[str, int], ...] = ()

    @property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    def rest_from(self, node: str) -> "Life":
        """What is left of it for an item that stands at this node."""
        if node == FINISHED:
            return Life(self.start, (), self.after, self.nodes)
        done = next((calls for name, calls in self.nodes if name == node), 0)
        return Life(self.start, self.calls[done:], self.after, self.nodes)


@dataclass(frozen=True, slots=True)
class Experience:
    """Lives of earlier runs, and how long the first worker of a run takes to be there.

    `pace`: calls per second that the newest run got through, if its calls mostly waited; else None.
    """

    lives: tuple[Life, ...] = ()
    runs: int = 0
    warm_up: float = 0.0
    pace: float | None = None

    def whole(self) -> "Experience":
        """Without the lives that went on from a checkpoint: they began where others were on the way."""
        later = {name for life in self.lives for name, _ in life.nodes[1:]}
        lives = tuple(life for life in self.lives if life.nodes and life.nodes[0][0] not in later)
        return replace(self, lives=lives)

    def among(self, seats: Seats) -> "Experience":
        """Only what was asked of models that would be asked now."""
        lives = tuple(life for life in self.lives if all(_seats(call) <= seats for call in life.calls))
        return replace(self, lives=lives)


def _seats(call: Call) -> Seats:
    return frozenset(zip(call.wish.providers, call.wish.models, strict=False))


@dataclass(slots=True)
class _Page:
    """An item under way, as its events tell."""

    started: float
    start: float = 0.0
    since: float | None = None
    worked: float = 0.0
    wanted: float = 0.0
    granted: float = 0.0
    wish: events.LeaseWanted | None = None
    calls: list[Call] = field(default_factory=list)
    nodes: list[tuple[str, int]] = field(default_factory=list)
    outcome: Outcome | None = None

    def work(self, at: float) -> None:
        """Up to now it was at work, if it was neither waiting for a key nor calling."""
        if self.since is not None:
            self.worked += at - self.since
        self.since = None


@dataclass(slots=True)
class _Queue:
    """The calls of a run, before a key and with one."""

    calls: int = 0
    waited: float = 0.0
    called: float = 0.0
    first: float | None = None
    last: float = 0.0

    def count(self, page: _Page, at: float) -> None:
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


class Chronicle:
    """Fed with the events of one run, in order; a part of them will do."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.warm_up = 0.0
        self._began: float | None = None
        self._ready = float("-inf")
        self._pages: dict[str, _Page] = {}
        self._queue = _Queue()

    @property
    def pace(self) -> float | None:
        return self._queue.pace

    def hear(self, event: events.Event, at: float) -> None:
        match event:
            case events.RunStarted():
                self._began = at
            case events.ItemStarted():
                self._pages[event.item] = _Page(at)
            case _:
                page = self._pages.get(getattr(event, "item", ""))
                if page is not None:
                    self._hear(event, page, at)

    def _hear(self, event: events.Event, page: _Page, at: float) -> None:
        match event:
            case events.WorkerStarted():
                self._hear_start(page, at)
            case events.NodeStarted():
                page.nodes.append((event.node, len(page.calls)))
            case events.LeaseWanted():
                page.work(at)
                page.wish, page.wanted = event, at
            case events.LeaseGranted():
                page.granted = at
            case events.LeaseReturned():
                self._hear_return(event, page, at)
            case events.WorkerReported():
                page.outcome = event.outcome
            case events.WorkerEnded():
                self._hear_end(page, at)
            case _:
                pass

    def _hear_start(self, page: _Page, at: float) -> None:
        page.since = at
        if self._began is not None:
            self.warm_up, self._began, self._ready = at - self._began, None, at
        # The first workers wait for all that is loaded before them; that is the run's time, not theirs.
        page.start = at - max(page.started, self._ready)

    def _hear_return(self, event: events.LeaseReturned, page: _Page, at: float) -> None:
        if page.wish is not None and event.refusal is None and event.usage.calls:
            page.calls.append(Call(page.worked, page.wish, at - page.granted, event.usage))
            self._queue.count(page, at)
            page.worked = 0.0
        page.since = at

    def _hear_end(self, page: _Page, at: float) -> None:
        page.work(at)
        outcome = page.outcome
        if outcome and outcome.ending is Ending.FINISHED and outcome.rounds:
            self.lives.append(Life(page.start, tuple(page.calls), page.worked, tuple(page.nodes)))
        page.since = None
