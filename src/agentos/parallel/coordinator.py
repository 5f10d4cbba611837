"""Items side by side, for a function of one's own."""

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
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.scheduler import Scheduler
from agentos.engines.inline import InlineChannel, InlineEngine
from agentos.outputs.format import over_maximum
from agentos.parallel.credentials import CredentialCoordinator, ReservedCredential
from agentos.parallel.results import ProgressStats, WorkflowResult
from agentos.parallel.subprocess_call import call_in_process, error_text
from agentos.run.event_loop import Clock, EventLoop, ExternalInputs
from agentos.run.signals import Signals
from agentos.storage.peer_log import NoPeers

DEFAULT_PARALLELISM = DEFAULT_PARALLEL
MAX_PARALLELISM = MAX_PARALLEL
INTERRUPTED = "Interrupted by shutdown signal"
NO_CREDENTIAL = "Failed to acquire credential"
T = TypeVar("T")
WorkerFunc = Callable[[T, str | None], Any]


class ParallelResult(NamedTuple):
    """How it went, and a result for every item, in their order."""

    stats: ProgressStats
    results: list[WorkflowResult]


class ParallelCoordinator:
    """Calls a function for every item, some at a time, each with a credential if there is a pool of them.

    Threads by default; with `processes` each call is in a process of its own, and the function and its items
    must be such as can be pickled. It can be used again, and from any thread.
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
        """Until every item has ended; whatever happens to one of them is its own result."""
        everything = list(items)
        ids = [str(item_id_func(item)) for item in everything]
        self._checkpoints = []
        if dry_run:
            _list_items(ids)
            return ParallelResult(ProgressStats(total=len(ids)), [])
        crew = _WorkerPool(everything, ids, worker_func, self)
        if everything:
            crew.work()
        self._checkpoints = crew.interrupted
        return ParallelResult(crew.stats, [crew.results[place] for place in sorted(crew.results)])

    def get_checkpoints(self) -> list[str]:
        """The items that the last shutdown signal kept from being finished."""
        return list(self._checkpoints)

    # What a worker does.

    def reserve(self, item_id: str, stopping: threading.Event) -> ReservedCredential | None:
        assert self.credential_coordinator is not None
        return self.credential_coordinator.reserve_unless(stopping, item_id, self._credential_timeout)

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...], cut: threading.Event) -> Any:
        return call_in_process(function, arguments, cut) if self._processes else function(*arguments)


@dataclass(slots=True)
class _WorkerPool(Generic[T]):
    """One execution: the work of its threads, and what came of it. A listener of its own run."""

    items: list[T]
    ids: list[str]
    function: WorkerFunc[T]
    owner: ParallelCoordinator
    stats: ProgressStats = field(default_factory=ProgressStats)
    results: dict[int, WorkflowResult] = field(default_factory=dict)
    interrupted: list[str] = field(default_factory=list)
    _returned: dict[int, object] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        # By place, not by id: ids are the caller's, and may be twice the same.
        places = tuple(str(place) for place in range(len(self.items)))
        self.stats.total = len(places)
        engine = InlineEngine(self._run_item)
        limits = Limits(self.owner.max_workers, retries=0, timeout=float("inf"))
        run = Scheduler(places, Pool(()), limits, random.random, time.monotonic())
        started = events.RunStarted("", "", "", places, limits.parallel, ())
        clock = Clock(time.monotonic, time.time)
        with contextlib.closing(engine), _signals(engine) as outside:
            EventLoop(run, engine, [self], clock, NoPeers()).run(started, outside)

    # In the thread of one item.

    def _run_item(self, command: StartWorker, channel: InlineChannel) -> Outcome:
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
        place = int(command.item)
        try:
            value = self.owner.call(self.function, (self.items[place], credential), channel.cancelled)
        except BaseException as error:  # also SystemExit: it is this item's failure alone
            return failed(error_text(error))
        self._returned[place] = value
        if isinstance(value, WorkflowResult) and not value.success:
            return failed(value.error or "")
        return Outcome(Ending.FINISHED)

    # What the run tells.

    def on_event(self, event: events.Event, at: float) -> None:
        match event:
            case events.ShutdownStarted():
                self._stopping.set()
            case events.ItemEnded():
                self._end(int(event.item), event)
            case _:
                pass

    def close(self) -> None:
        pass

    def _end(self, place: int, event: events.ItemEnded) -> None:
        name, ending = self.ids[place], event.outcome.ending
        if ending is Ending.INTERRUPTED:
            self.interrupted.append(name)
        succeeded = ending is Ending.FINISHED
        error = INTERRUPTED if ending is Ending.INTERRUPTED else event.outcome.error
        self.results[place] = WorkflowResult(
            name, succeeded, None if succeeded else error, event.seconds, _metadata(self._returned.get(place))
        )
        self.stats.completed += 1
        self.stats.success_count += succeeded
        self.stats.failed += not succeeded


@contextlib.contextmanager
def _signals(engine: InlineEngine) -> Iterator[ExternalInputs]:
    """Signals are caught on the main thread, and put back as they were; elsewhere there are none."""
    if threading.current_thread() is not threading.main_thread():
        yield ExternalInputs([])
        return
    with Signals().caught() as signals:
        signals.wake = engine.wake
        yield ExternalInputs(signals.arrived, suspend=signals.suspend)


def _metadata(value: object) -> Mapping[str, Any]:
    """What a worker gave back: the metadata of its result, a mapping as it is, or any value under `result`."""
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
        raise ValueError(f"max_workers = {workers}: expected 1 to {MAX_PARALLELISM}")
    if workers > MAX_PARALLELISM:
        warnings.warn(over_maximum(workers), stacklevel=3)
    return min(workers, MAX_PARALLELISM)


def _list_items(ids: list[str]) -> None:
    lines = [
        f"[COORDINATOR] Dry run mode - would process {len(ids)} items:",
        *(f"  - {name}" for name in ids),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
