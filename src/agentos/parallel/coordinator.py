"""Runs a function for many items in parallel, on the same scheduler as the agentos commands."""

import contextlib
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from agentos.core.constants import DEFAULT_PARALLEL, MAX_PARALLEL
from agentos.core.protocol import events
from agentos.core.protocol.commands import StartWorker
from agentos.core.protocol.ports import Clock
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.core.quota.budget import Limits
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.engines.inline import InlineChannel, InlineEngine
from agentos.outputs.format import count, over_maximum
from agentos.parallel.credentials import CredentialCoordinator, ReservedCredential
from agentos.parallel.subprocess_call import call_in_process, error_text
from agentos.run.event_loop import EventLoop, ExternalInputs
from agentos.run.signals import Signals
from agentos.storage.peer_log import NoPeers

DEFAULT_PARALLELISM = DEFAULT_PARALLEL
MAX_PARALLELISM = MAX_PARALLEL
INTERRUPTED = "Interrupted by shutdown signal"
NO_CREDENTIAL = "Failed to acquire credential"
T = TypeVar("T")
WorkerFunc = Callable[[T, str | None], Any]
"""Takes an item and, if there is a credential coordinator, the key reserved for it; otherwise None."""


@dataclass(frozen=True, slots=True)
class WorkflowResult:
    """The result of one item.

    - `item_id`: the id that `item_id_func` gave.
    - `success`, `error`: whether the item succeeded, and the error's text if it did not.
    - `duration`: seconds.
    - `metadata`: what the worker function returned: a mapping as it is, any other value under the key `"result"`.
    """

    item_id: str
    success: bool
    error: str | None = None
    duration: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ProgressStats:
    """Counts the items of an execution. `completed` counts those that succeeded or failed; `failed` includes those that
    were interrupted."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    success_count: int = 0
    start_time: float = field(default_factory=time.time)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return max(0.0, time.time() - self.start_time)

    @property
    def completion_rate(self) -> float:
        """Completed items as a percentage of all items; 0.0 if there are none."""
        return 100.0 * self.completed / self.total if self.total else 0.0


class ParallelResult(NamedTuple):
    """The statistics of an execution, and one result per item in the order of the items."""

    stats: ProgressStats
    results: list[WorkflowResult]


class ParallelCoordinator:
    """Calls a function for every item, up to `max_workers` at a time.

        coordinator = ParallelCoordinator(max_workers=4)
        stats, results = coordinator.execute_parallel(urls, fetch, item_id_func=str)

    - `max_workers`: 1 to MAX_PARALLELISM; a larger number is capped with a warning. Default: DEFAULT_PARALLELISM.
    - `credential_coordinator`: if given, every call holds a key of its own, which the function gets as its second
      argument. An item fails if no key becomes free within `credential_timeout` seconds (None: waits forever).
    - `processes`: runs each call in a process of its own instead of a thread, so that a crash or a leak affects only
      its item. The function and the items must then be picklable.

    An exception in the function, including SystemExit, fails its own item and no other.

    On SIGINT (Ctrl-C), SIGTERM or SIGHUP, `execute_parallel` returns instead of raising: no further item starts,
    running calls get 4 seconds to finish, and the items that did not finish are reported as interrupted and listed by
    `get_checkpoints`. Signals are caught only on the main thread, and the previous handlers are restored.

    A coordinator can be reused, also from within a worker function, and can be used from any thread.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        credential_coordinator: CredentialCoordinator | None = None,
        *,
        processes: bool = False,
        credential_timeout: float | None = 30.0,
    ) -> None:
        self.max_workers = _capped(DEFAULT_PARALLELISM if max_workers is None else max_workers)
        self.credential_coordinator = credential_coordinator
        self._processes = processes
        self._credential_timeout = credential_timeout
        self._checkpoints: list[str] = []

    def execute_parallel(
        self,
        items: Iterable[T],
        worker_func: WorkerFunc[T],
        item_id_func: Callable[[T], str],
        dry_run: bool = False,
    ) -> ParallelResult:
        """Returns when every item has ended.

        `item_id_func` gives the id under which an item appears in the results; ids need not be unique. With `dry_run`,
        the items are only printed.
        """
        all_items = list(items)
        ids = [str(item_id_func(item)) for item in all_items]
        self._checkpoints = []
        if dry_run:
            _print_items(ids)
            return ParallelResult(ProgressStats(total=len(ids)), [])
        execution = _Execution(all_items, ids, worker_func, self)
        if all_items:
            execution.run()
        self._checkpoints = execution.interrupted
        return ParallelResult(execution.stats, [result for _, result in sorted(execution.results.items())])

    def get_checkpoints(self) -> list[str]:
        """The ids of the items that a shutdown signal interrupted in the last execution."""
        return list(self._checkpoints)

    def reserve(self, item_id: str, stopping: threading.Event) -> ReservedCredential | None:
        assert self.credential_coordinator is not None
        return self.credential_coordinator.reserve_unless(stopping, item_id, self._credential_timeout)

    def call(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], cancelled: threading.Event
    ) -> Any:
        return call_in_process(function, arguments, cancelled) if self._processes else function(*arguments)


@dataclass(slots=True)
class _Execution(Generic[T]):
    """One call of `execute_parallel`: runs each item in its thread and, as a listener to the run, collects the results."""

    items: list[T]
    ids: list[str]
    function: WorkerFunc[T]
    owner: ParallelCoordinator
    stats: ProgressStats = field(default_factory=ProgressStats)
    results: dict[int, WorkflowResult] = field(default_factory=dict)
    interrupted: list[str] = field(default_factory=list)
    _returned: dict[int, object] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        # The scheduler knows the items by index, because the caller's ids need not be unique.
        indexes = tuple(str(index) for index in range(len(self.items)))
        self.stats.total = len(indexes)
        engine = InlineEngine(self._run_item)
        limits = Limits(self.owner.max_workers, retries=0, timeout=float("inf"))
        scheduler = Scheduler(indexes, Pool(()), limits, random.random, time.monotonic())
        started = events.RunStarted("", "", "", indexes, limits.parallel, ())
        clock = Clock(time.monotonic, time.time)
        with contextlib.closing(engine), _signals(engine) as inputs:
            EventLoop(scheduler, engine, [self], clock, NoPeers()).run(started, inputs)

    def _run_item(self, command: StartWorker, channel: InlineChannel) -> Outcome:
        """Runs in the item's own thread."""
        if self.owner.credential_coordinator is None:
            return self._call(command, channel, None)
        credential = self.owner.reserve(self.ids[int(command.item)], self._stopping)
        if credential is None:
            return Outcome(Ending.INTERRUPTED) if self._stopping.is_set() else failed(NO_CREDENTIAL)
        try:
            return self._call(command, channel, credential)
        finally:
            self.owner.credential_coordinator.release(credential)

    def _call(self, command: StartWorker, channel: InlineChannel, credential: str | None) -> Outcome:
        index = int(command.item)
        try:
            value = self.owner.call(self.function, (self.items[index], credential), channel.cancelled)
        except BaseException as error:  # includes SystemExit: it fails this item only
            return failed(error_text(error))
        self._returned[index] = value
        if isinstance(value, WorkflowResult) and not value.success:
            return failed(value.error or "")
        return Outcome(Ending.FINISHED)

    def on_event(self, event: events.Event, at: float) -> None:
        match event:
            case events.ShutdownStarted():
                self._stopping.set()
            case events.ItemEnded():
                self._add_result(int(event.item), event)
            case _:
                pass

    def close(self) -> None:
        pass

    def _add_result(self, index: int, event: events.ItemEnded) -> None:
        item_id, ending = self.ids[index], event.outcome.ending
        if ending is Ending.INTERRUPTED:
            self.interrupted.append(item_id)
        succeeded = ending is Ending.FINISHED
        error = INTERRUPTED if ending is Ending.INTERRUPTED else event.outcome.error
        self.results[index] = WorkflowResult(
            item_id,
            succeeded,
            None if succeeded else error,
            event.seconds,
            _metadata(self._returned.get(index)),
        )
        self.stats.completed += 1
        self.stats.success_count += succeeded
        self.stats.failed += not succeeded


@contextlib.contextmanager
def _signals(engine: InlineEngine) -> Iterator[ExternalInputs]:
    """Catches signals while the block runs, on the main thread: on any other, Python does not allow it."""
    if threading.current_thread() is not threading.main_thread():
        yield ExternalInputs([])
        return
    with Signals().caught() as signals:
        signals.wake = engine.wake
        yield ExternalInputs(signals.arrived, suspend=signals.suspend)


def _metadata(value: object) -> Mapping[str, Any]:
    """The `metadata` of a `WorkflowResult`, from what the worker function returned."""
    match value:
        case WorkflowResult():
            return value.metadata
        case Mapping():
            return value
        case None:
            return {}
        case _:
            return {"result": value}


def _capped(workers: int) -> int:
    if workers < 1:
        raise ValueError(f"invalid max_workers {workers}: must be 1 to {MAX_PARALLELISM}")
    if workers > MAX_PARALLELISM:
        warnings.warn(over_maximum(workers), stacklevel=3)
    return min(workers, MAX_PARALLELISM)


def _print_items(ids: list[str]) -> None:
    lines = [
        f"[COORDINATOR] Dry run mode - would process {count(len(ids), 'item')}:",
        *(f"  - {name}" for name in ids),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
