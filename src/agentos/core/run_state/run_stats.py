"""Run statistics: the current state and the totals of a run, computed from its events."""

from collections import Counter, deque
from dataclasses import dataclass, field

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.quota.budget import add_costs

RECENT_ITEMS = 200
OVER = (Ending.FINISHED, Ending.FAILED, Ending.PARKED, Ending.FINISHED_BY_OTHER_RUN)


@dataclass(slots=True)
class ItemStats:
    """The state and the totals of one item."""

    item: str
    index: int = 0
    node: str = ""
    round: int = 0
    running: bool = False
    since: float = 0.0
    outcome: Outcome | None = None
    seconds: float = 0.0
    """Of the attempts that are over; of all attempts once the item has ended."""
    leases: set[str] = field(default_factory=set)
    ungranted: int = 0
    """Calls for which the item has requested a key and not been granted one."""
    calls_made: int = 0
    """Calls that were answered, in this run and in the earlier ones that the item resumes."""
    progress_at: float = 0.0
    """When the worker started, or its last call was answered."""
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0
    call_seconds: float = 0.0
    start_up: float = 0.0
    """Seconds of all attempts from the start of the worker's process to its first node."""
    is_starting: bool = False
    cost: float | None = 0.0
    quiet_level: str = ""
    has_workspace: bool = False
    """Whether its changes are saved in a worktree or a copy."""
    cuts: int = 0
    """Answers that were cut because no token came in time."""

    def age(self, at: float) -> float:
        """Seconds that the item has been running by then, over all attempts."""
        return self.seconds + (max(0.0, at - self.since) if self.running else 0.0)

    def end_start_up(self, at: float) -> None:
        if self.is_starting:
            self.start_up += max(0.0, at - self.since)
            self.is_starting = False

    @property
    def waits_for_key(self) -> bool:
        """Whether the item is held up only by the keys: it has requested one and holds none."""
        return self.running and self.ungranted > 0 and not self.leases

    @property
    def is_taken(self) -> bool:
        """Whether another run holds or has finished the item."""
        endings = (Ending.HELD_BY_OTHER_RUN, Ending.FINISHED_BY_OTHER_RUN)
        return self.outcome is not None and self.outcome.ending in endings

    @property
    def status(self) -> str:
        """The item's state in one or two words."""
        if self.outcome is None:
            return "running" if self.running else "waiting"
        if self.outcome.ending is Ending.INTERRUPTED and not self.attempts:
            return "not started"
        if self.outcome.ending is Ending.FINISHED and self.outcome.verdict:
            return self.outcome.verdict.value
        return self.outcome.ending.value


@dataclass(slots=True)
class RunStats:
    """Pass every event of a run to `handle`, in order; then read the fields."""

    started: events.RunStarted | None = None
    began: float = 0.0
    ended: events.RunEnded | None = None
    last: float = 0.0
    rows: dict[str, ItemStats] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    cooling_down: dict[str, float] = field(default_factory=dict)
    paced_until: float = 0.0
    """When the next call can start, if every key is at its limit."""
    refusals: int = 0
    cuts: int = 0
    """Answers that were cut because no token came in time; `cut_tokens` were generated until then."""
    cut_tokens: int = 0
    warm_up: float | None = None
    """Seconds until the first worker had started; None before."""
    workers: int = 0
    paused: events.RunPaused | None = None
    suspended_at: float | None = None
    """Since when the run is suspended (Ctrl-Z)."""
    was_suspended: bool = False
    stopped: events.ShutdownStarted | None = None
    stopped_at: float = 0.0
    over: int = 0
    """Items that ended, here or in another run; interrupted ones and those that another run holds did not."""
    usage: Usage = field(default_factory=Usage)
    cost: float | None = 0.0
    """None when a price is unknown."""
    closed: int = 0
    """Items that ended in any way; the next fields are about those that finished."""
    finished: int = 0
    finished_seconds: float = 0.0
    finished_calls: int = 0
    finished_cost: float | None = 0.0
    finished_totals: Counter[int] = field(default_factory=Counter)
    """How many items finished after so many calls, counted over all runs that worked on them."""
    recent_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_ITEMS))
    """How long the last items took that finished."""
    paused_seconds: float = 0.0
    """Seconds of all completed pauses and suspensions."""
    paused_since: float | None = None
    """Since when the run is paused or suspended."""
    auto_workers: bool = False
    """Whether the run decides the number of workers itself."""
    worker_counts: list[int] = field(default_factory=list)
    """Every number of workers that the run has had."""
    _running: dict[str, ItemStats] = field(default_factory=dict)

    def handle(self, event: events.Event, at: float) -> None:  # noqa: C901 - one case per event
        self.last = at
        self._handle_worker_event(event)
        match event:
            case events.RunStarted():
                self.started, self.began, self.workers = event, at, event.workers
                self.auto_workers, self.worker_counts = event.auto_workers, [event.workers]
                self.rows = {item: ItemStats(item, index) for index, item in enumerate(event.items)}
            case events.ItemStarted():
                self._handle_item_start(event.item, at)
            case events.WorkerStarted():
                row = self.rows[event.item]
                row.since, row.progress_at, row.is_starting = at, at, True
                self.warm_up = at - self.began if self.warm_up is None else self.warm_up
            case events.WorkerExited():
                self._handle_worker_end(self.rows[event.item], at)
            case events.WorkerStartFailed():
                self._leave(self.rows[event.item])
            case events.NodeStarted():
                self.rows[event.item].end_start_up(at)
                self.rows[event.item].node, self.rows[event.item].round = (
                    event.node,
                    event.round,
                )
            case events.WorkspaceSaved():
                self.rows[event.item].has_workspace = True
            case events.CallsThrottled():
                self.paced_until = at + event.seconds
            case events.LeaseRequested():
                self.rows[event.item].ungranted += 1
                self.rows[event.item].calls_made = event.calls_done
            case events.KeyWaitStarted():
                self.rows[event.item].ungranted = 1
            case events.KeyWaitEnded():
                self.rows[event.item].ungranted = 0
            case events.LeaseGranted():
                self._handle_grant(event)
            case events.CallCompleted():
                row = self.rows[event.item]
                row.cost, self.cost = add_costs(row.cost, event.cost), add_costs(self.cost, event.cost)
            case events.CallCut():
                self.rows[event.item].cuts += 1
                self.cuts += 1
                self.cut_tokens += event.usage.output_tokens
            case events.LeaseReleased():
                self._handle_release(event, at)
            case events.KeyLimited() | events.KeyExhausted():
                self.refusals += 1
                self.cooling_down[event.key] = at + event.seconds
            case events.KeyRecovered():
                self.cooling_down.pop(event.key, None)
            case events.ItemRetried() | events.ItemSuspended():
                self._leave(self.rows[event.item])
            case events.ItemRequeued():
                self._reopen(self.rows[event.item])
            case events.WorkerCountChanged():
                self.workers, self.auto_workers = event.workers, event.auto
                self.worker_counts.append(event.workers)
            case events.RunPaused() | events.RunResumed() | events.RunSuspended() | events.RunContinued():
                self._handle_pause(event, at)
            case events.ItemEnded():
                self._handle_item_end(event)
            case events.ShutdownStarted():
                self.stopped, self.stopped_at = event, at
            case events.RunEnded():
                self.ended = event
            case _:
                pass

    def _handle_item_start(self, item: str, at: float) -> None:
        row = self._running[item] = self.rows[item]
        self._reopen(row)  # it was parked and resumes
        row.running, row.since, row.progress_at = True, at, at

    def _handle_worker_end(self, row: ItemStats, at: float) -> None:
        """The worker holds no key any more and its item no longer runs."""
        row.seconds = row.age(at)
        self._leave(row)
        row.ungranted = 0
        for lease in row.leases:
            self.held.pop(lease, None)
        row.leases.clear()

    def _leave(self, row: ItemStats) -> None:
        row.running = False
        self._running.pop(row.item, None)

    def _handle_pause(
        self,
        event: events.RunPaused | events.RunResumed | events.RunSuspended | events.RunContinued,
        at: float,
    ) -> None:
        """A run can be suspended while paused; that time counts once."""
        if isinstance(event, events.RunPaused | events.RunSuspended):
            self.paused_since = at if self.paused_since is None else self.paused_since
        match event:
            case events.RunPaused():
                self.paused = event
            case events.RunResumed():
                self.paused = None
            case events.RunSuspended():
                self.suspended_at, self.was_suspended = at, True
            case events.RunContinued():
                self.suspended_at = None
                for row in self._running.values():
                    row.since += event.seconds
        if self.paused_since is not None and self.paused is None and self.suspended_at is None:
            self.paused_seconds += at - self.paused_since
            for row in self._running.values():
                row.progress_at += max(0.0, at - max(row.progress_at, self.paused_since))
            self.paused_since = None

    def _reopen(self, row: ItemStats) -> None:
        if row.outcome is not None:
            self.closed -= 1
            self.over -= row.outcome.ending in OVER
        row.outcome = None

    def _handle_worker_event(self, event: events.Event) -> None:
        """Every event of an item except ItemQuiet is a sign of life."""
        row = self.rows.get(getattr(event, "item", ""))
        if row is not None:
            row.quiet_level = event.level if isinstance(event, events.ItemQuiet) else ""

    def _handle_grant(self, event: events.LeaseGranted) -> None:
        row = self.rows[event.item]
        self.paced_until = 0.0
        self.held[event.lease] = event.key
        row.leases.add(event.lease)
        row.ungranted = max(0, row.ungranted - 1)

    def _handle_release(self, event: events.LeaseReleased, at: float) -> None:
        self.held.pop(event.lease, None)
        row = self.rows[event.item]
        row.leases.discard(event.lease)
        if event.usage.calls:
            row.calls_made, row.progress_at = row.calls_made + event.usage.calls, at
        row.usage += event.usage
        self.usage += event.usage
        row.call_seconds += event.seconds

    def _handle_item_end(self, event: events.ItemEnded) -> None:
        row = self.rows[event.item]
        self._leave(row)
        row.outcome, row.seconds = event.outcome, event.seconds
        self.usage += event.usage - row.usage
        row.usage, row.attempts = event.usage, event.attempts
        self.over += event.outcome.ending in OVER
        self.closed += 1
        if event.outcome.ending is Ending.FINISHED:
            self.finished += 1
            self.finished_seconds += event.seconds
            self.finished_calls += event.usage.calls
            self.finished_totals[max(row.calls_made, event.usage.calls)] += 1
            self.recent_seconds.append(event.seconds)
            self.finished_cost = add_costs(self.finished_cost, row.cost)
        row.round = event.outcome.rounds or row.round

    # Queries.

    def ending(self, *endings: Ending) -> list[ItemStats]:
        return [row for row in self.rows.values() if row.outcome and row.outcome.ending in endings]

    def verdicts(self, verdict: Verdict) -> list[ItemStats]:
        """The items that this run finished with the verdict."""
        return [row for row in self.ending(Ending.FINISHED) if row.outcome and row.outcome.verdict is verdict]

    @property
    def running(self) -> list[ItemStats]:
        return sorted(self._running.values(), key=lambda row: row.index)

    @property
    def waiting_for_keys(self) -> list[ItemStats]:
        """The running items that are held up by the keys; none while the run is paused, which holds them up too."""
        return [] if self.paused else [row for row in self.running if row.waits_for_key]

    def present(self, at: float) -> float:
        """The time up to which the items' clocks run: they stop while the run is suspended."""
        return at if self.suspended_at is None else self.suspended_at

    @property
    def keyless(self) -> bool:
        """Whether the run has neither keys nor calls, so that tokens and cost are not worth showing."""
        return self.started is not None and not self.started.keys and not self.usage.calls

    @property
    def reviewed(self) -> bool:
        """Whether any item has a verdict."""
        return any(row.outcome and row.outcome.verdict for row in self.rows.values())

    @property
    def reviewing(self) -> bool:
        """Whether the items of this run are expected to end with a verdict (not those of `agentos exec` or of a user's graph)."""
        is_expected = self.started is not None and self.started.has_review
        return self.reviewed or (is_expected and not self.ending(Ending.FINISHED))


def bar(done: int, total: int) -> str:
    """Ten cells: `[=====>    ]`."""
    filled = 10 * done // total if total else 10
    return f"[{'=' * filled}{'>' if filled < 10 else ''}{' ' * (9 - filled)}]"
