"""Requests from other terminals: pause, resume, retry, change the number of workers."""

from agentos.core.constants import MAX_PARALLEL
from agentos.core.planning.plan import resolve_item
from agentos.core.protocol import events
from agentos.core.protocol.commands import StepResult, StopWorker
from agentos.core.protocol.events import RequestDeclined
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.queue import WorkQueue
from agentos.core.scheduling.shutdown import STOP_TIMEOUT, Shutdown

NOTHING_MATCHES, USAGE_ERROR = 5, 2  # exit codes of the asking command


class Control:
    """Carries out each request or declines it with a reason; the reply is the news of the step."""

    def __init__(self, queue: WorkQueue, shutdown: Shutdown) -> None:
        self._queue = queue
        self._shutdown = shutdown
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
        step: StepResult,
        now: float,
    ) -> None:
        if self._shutdown:
            step.news.append(RequestDeclined("the run is stopping and takes no more requests", USAGE_ERROR))
            return
        match event:
            case events.PauseRequested():
                self._pause(event, step, now)
            case events.ResumeRequested():
                self._resume(step, now)
            case events.RetryRequested():
                self._retry(event.item, step, now)
            case events.WorkerCountRequested():
                self._change_workers(event.workers, step)

    def _pause(self, event: events.PauseRequested, step: StepResult, now: float) -> None:
        running = [item for item in self._queue.running() if not item.suspended]
        if self._paused_since is not None and not (event.now and running):
            step.news.append(RequestDeclined("the run is already paused. Resume it with: agentos resume"))
            return
        self._paused_since = now if self._paused_since is None else self._paused_since
        step.news.append(events.RunPaused(event.now))
        for item in running if event.now else ():
            item.suspend(now + STOP_TIMEOUT)
            step.commands.append(StopWorker(item.id))

    def _resume(self, step: StepResult, now: float) -> None:
        if self._paused_since is None:
            step.news.append(RequestDeclined("the run is not paused. Pause it with: agentos pause"))
            return
        step.news.append(events.RunResumed(now - self._paused_since))
        for item in self._queue.running():
            item.resume(self._paused_since, now)
        self._paused_since = None

    def _retry(self, name: str, step: StepResult, now: float) -> None:
        name = resolve_item(name, self._queue.items) or name
        item = self._queue.items.get(name)
        if item is None or not item.try_again(now):
            step.news.append(_no_retry(name, item, tuple(self._queue.items)))
            return
        self._queue.queue_first(item)
        step.news.append(events.ItemRequeued(name))

    def _change_workers(self, workers: int, step: StepResult) -> None:
        workers, previous = min(workers, MAX_PARALLEL), self._queue.workers
        if workers < 1:
            reason = f"invalid worker count {workers}: must be 1 to {MAX_PARALLEL}"
            step.news.append(RequestDeclined(reason, USAGE_ERROR))
        elif workers == previous:
            step.news.append(RequestDeclined(f"the run already has {workers} workers"))
        else:
            step.news.append(events.WorkerCountChanged(workers, previous))
            self._queue.change_workers(workers)


def _no_retry(name: str, item: ItemState | None, items: tuple[str, ...]) -> RequestDeclined:
    """Why the item cannot be retried: only items that failed can."""
    if item is None:
        known = ", ".join(items[:10]) + (f" and {len(items) - 10} more" if len(items) > 10 else "")
        return RequestDeclined(f"{name} is not in this run; its items: {known}", NOTHING_MATCHES)
    if item.ended is None:
        return RequestDeclined(f"{name} has not ended: it is running or queued", USAGE_ERROR)
    return RequestDeclined(
        f"{name} did not fail: it ended as {item.ended.verdict or item.ended.ending}", USAGE_ERROR
    )
