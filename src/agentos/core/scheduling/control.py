"""What people ask of a run from another terminal."""

from agentos.core.constants import MAX_PARALLEL
from agentos.core.planning.items import resolve_item
from agentos.core.protocol import events
from agentos.core.protocol.commands import StepResult, StopWorker
from agentos.core.protocol.events import RequestDeclined
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.queue import WorkQueue
from agentos.core.scheduling.shutdown import KILL_AFTER, Shutdown


class Control:
    """Each request changes something, or is declined with the reason."""

    def __init__(self, queue: WorkQueue, stop: Shutdown) -> None:
        self._queue = queue
        self._stop = stop
        self._paused_since: float | None = None

    @property
    def paused(self) -> bool:
        return self._paused_since is not None

    def handle(
        self,
        event: events.PauseRequested
        | events.ResumeRequested
        | events.RetryRequested
        | events.WorkerCountRequested,
        decision: StepResult,
        now: float,
    ) -> None:
        if self._stop:
            decision.news.append(stopping_already())
            return
        match event:
            case events.PauseRequested():
                self._pause(event, decision, now)
            case events.ResumeRequested():
                self._resume(decision, now)
            case events.RetryRequested():
                self._retry(event.item, decision, now)
            case events.WorkerCountRequested():
                self._change_workers(event.workers, decision)

    def _pause(self, event: events.PauseRequested, decision: StepResult, now: float) -> None:
        staying = [work for work in self._queue.running() if not work.suspended]
        if self._paused_since is not None and not (event.now and staying):
            decision.news.append(paused_already())
            return
        self._paused_since = now if self._paused_since is None else self._paused_since
        decision.news.append(events.RunPaused(event.now))
        for work in staying if event.now else ():
            work.suspend(now + KILL_AFTER)
            decision.commands.append(StopWorker(work.item))

    def _resume(self, decision: StepResult, now: float) -> None:
        if self._paused_since is None:
            decision.news.append(not_paused())
            return
        decision.news.append(events.RunResumed(now - self._paused_since))
        for work in self._queue.running():
            work.resume(self._paused_since, now)
        self._paused_since = None

    def _retry(self, item: str, decision: StepResult, now: float) -> None:
        item = resolve_item(item, self._queue.items) or item
        work = self._queue.items.get(item)
        if work is None or not work.try_again(now):
            decision.news.append(no_retry(item, work, tuple(self._queue.items)))
            return
        self._queue.queue_first(work)
        decision.news.append(events.ItemRequeued(item))

    def _change_workers(self, workers: int, decision: StepResult) -> None:
        wanted, before = min(workers, MAX_PARALLEL), self._queue.workers
        if wanted < 1 or wanted == before:
            decision.news.append(no_workers(wanted))
            return
        decision.news.append(events.WorkerCountChanged(wanted, before))
        self._queue.change_workers(wanted)


NOT_HERE, NOT_SO = 5, 2


def stopping_already() -> RequestDeclined:
    return RequestDeclined("the run is stopping: nothing can be asked of it any more", NOT_SO)


def paused_already() -> RequestDeclined:
    return RequestDeclined("it is paused already. Go on with: agentos resume")


def not_paused() -> RequestDeclined:
    return RequestDeclined("it is not paused, and goes on. Pause it with: agentos pause")


def no_workers(workers: int) -> RequestDeclined:
    if workers < 1:
        return RequestDeclined(f"{workers} workers cannot be; expected 1 to {MAX_PARALLEL}", NOT_SO)
    return RequestDeclined(f"it has {workers} already")


def no_retry(item: str, work: ItemState | None, items: tuple[str, ...]) -> RequestDeclined:
    """Only what ended without a verdict is tried again."""
    if work is None:
        known = ", ".join(items[:10]) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
        return RequestDeclined(f"{item} is not in this run; its items: {known}", NOT_HERE)
    if work.ended is None:
        return RequestDeclined(f"{item} has not ended: it is running, or still to come", NOT_SO)
    return RequestDeclined(
        f"{item} did not fail: it ended as {work.ended.verdict or work.ended.ending}", NOT_SO
    )
