"""Requests from other terminals (pause, resume, retry, number of workers), and the shutdown of a run."""

from agentos.core.planning.items import resolve_item
from agentos.core.protocol import events
from agentos.core.protocol.commands import KillWorker, StepResult, StopWorker
from agentos.core.protocol.events import RequestDeclined, ShutdownStarted
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.queue import WorkQueue

STOP_TIMEOUT = 4.0  # seconds a worker has to exit by itself before it is killed
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
ControlEvent = (
    events.PauseRequested | events.ResumeRequested | events.RetryRequested | events.WorkerCountRequested
)
NOTHING_MATCHES, USAGE_ERROR = 5, 2  # exit codes of the command that sent the request


class Shutdown:
    """The early end of a run, by a signal or a limit; truthy once it has begun.

    Workers are asked to stop, and killed after STOP_TIMEOUT. A second signal kills them at once. A signal that follows a
    limit replaces the reason and restarts the timeout. The scheduler ends the queued items.
    """

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._reason = ""
        self.detail = ""
        self.exit_code: int | None = None
        self.kill_at: float | None = None

    def __bool__(self) -> bool:
        return bool(self._reason)

    def handle_signal(self, signal: str, step: StepResult, now: float) -> None:
        if self._reason in EXIT_CODES:
            self._kill_all(step)
        else:
            self.begin(ShutdownStarted(signal), EXIT_CODES[signal], step, now)

    def begin(self, started: ShutdownStarted, exit_code: int, step: StepResult, now: float) -> None:
        if not self:
            step.commands.extend(StopWorker(item.id) for item in self._queue.running())
        self._reason, self.detail, self.exit_code = started.reason, started.detail, exit_code
        self.kill_at = now + STOP_TIMEOUT
        step.events.append(started)

    def enforce_deadline(self, step: StepResult, now: float) -> None:
        if self.kill_at is not None and now >= self.kill_at:
            self._kill_all(step)

    def postpone(self, seconds: float) -> None:
        """Move the deadline: the run was suspended for `seconds`, which do not count."""
        self.kill_at = None if self.kill_at is None else self.kill_at + seconds

    def _kill_all(self, step: StepResult) -> None:
        self.kill_at = None
        if killed := tuple(item.id for item in self._queue.running()):
            step.commands.extend(KillWorker(item) for item in killed)
            step.events.append(events.WorkersKilled(killed))


class Control:
    """Carries out each request or declines it with a reason; the reply consists of the events of the step."""

    def __init__(self, queue: WorkQueue, shutdown: Shutdown, max_parallel: int) -> None:
        self._queue = queue
        self._shutdown = shutdown
        self._max_parallel = max_parallel
        self._paused_since: float | None = None

    @property
    def paused(self) -> bool:
        return self._paused_since is not None

    def handle(
        self,
        event: ControlEvent,
        step: StepResult,
        now: float,
    ) -> None:
        if self._shutdown:
            step.events.append(
                RequestDeclined("the run is stopping and accepts no more requests", USAGE_ERROR)
            )
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
            step.events.append(RequestDeclined("the run is already paused. Resume it with: agentos resume"))
            return
        self._paused_since = now if self._paused_since is None else self._paused_since
        step.events.append(events.RunPaused(event.now))
        for item in running if event.now else ():
            item.suspend(now + STOP_TIMEOUT)
            step.commands.append(StopWorker(item.id))

    def _resume(self, step: StepResult, now: float) -> None:
        if self._paused_since is None:
            step.events.append(RequestDeclined("the run is not paused. Pause it with: agentos pause"))
            return
        step.events.append(events.RunResumed(now - self._paused_since))
        for item in self._queue.running():
            item.resume(self._paused_since, now)
        self._paused_since = None

    def _retry(self, name: str, step: StepResult, now: float) -> None:
        name = resolve_item(name, self._queue.items) or name
        item = self._queue.items.get(name)
        if item is None or not item.try_again(now):
            step.events.append(_no_retry(name, item, tuple(self._queue.items)))
            return
        self._queue.queue_first(item)
        step.events.append(events.ItemRequeued(name))

    def _change_workers(self, requested: int, step: StepResult) -> None:
        workers, previous = min(requested, self._max_parallel), self._queue.workers
        if workers < 1:
            reason = f"invalid worker count {workers}: must be 1 to {self._max_parallel}"
            step.events.append(RequestDeclined(reason, USAGE_ERROR))
        elif workers == previous:
            step.events.append(
                RequestDeclined(
                    f"the run already has {workers} worker{'' if workers == 1 else 's'}"
                    f"{', its maximum' if requested > workers else ''}"
                )
            )
        else:
            step.events.append(events.WorkerCountChanged(workers, previous))
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
