"""The retry policy: what happens to an item when its worker has exited."""

from agentos.core.backoff import Jitter, backoff
from agentos.core.protocol import events
from agentos.core.protocol.commands import StepResult
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.scheduling.control import Shutdown
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.queue import WorkQueue

START_RETRY_DELAY = 1.0  # seconds


class RetryPolicy:
    """Decides after every worker exit whether the item ends or goes back into the queue.

    An item is retried, after a growing, jittered delay, if its failure is retryable and it has retries left.
    It is requeued without counting as a retry if its worker could not be started, was ended by a pause, or found
    the item held by another run (one recheck). While the run shuts down, every item ends.
    """

    def __init__(self, queue: WorkQueue, shutdown: Shutdown, retries: int, jitter: Jitter) -> None:
        self._queue = queue
        self._shutdown = shutdown
        self._retries = retries
        self._jitter = jitter

    def worker_start_failed(self, event: events.WorkerStartFailed, step: StepResult, now: float) -> None:
        """Requeue the item; the attempt does not count, because the item is not to blame."""
        item = self._queue.items[event.item]
        item.attempts -= 1
        item.stop_clock(now)
        self._release_slot(item, event.reason, step, now)
        item.not_before = now + START_RETRY_DELAY
        if self._shutdown or item.withdrawn:
            step.events.append(self._queue.end(item, Outcome(Ending.INTERRUPTED)))
        else:
            self._queue.queue_first(item)

    def worker_exited(self, event: events.WorkerExited, step: StepResult, now: float) -> None:
        item = self._queue.items[event.item]
        item.stop_clock(now)
        outcome = item.outcome(event.cause, bool(self._shutdown) or item.suspended)
        self._release_slot(item, "" if item.reported else event.cause, step, now)
        if self._shutdown or item.withdrawn or not self._requeue(item, outcome, step, now):
            step.events.append(self._queue.end(item, outcome))

    def _requeue(self, item: ItemState, outcome: Outcome, step: StepResult, now: float) -> bool:
        """Put the item back into the queue if this policy allows it."""
        if outcome.ending is Ending.HELD_BY_OTHER_RUN and item.record_held():
            item.attempts -= 1
            self._queue.queue_last(item)
        elif outcome.ending is Ending.INTERRUPTED and item.suspended:
            item.attempt_offset += 1
            self._queue.queue_first(item)
            step.events.append(events.ItemSuspended(item.id, item.node))
        elif outcome.retryable and item.tries <= self._retries:
            step.events.append(self._retry(item, outcome, now))
        else:
            return False
        return True

    def _retry(self, item: ItemState, outcome: Outcome, now: float) -> events.ItemRetried:
        seconds = backoff(item.tries, self._jitter)
        item.not_before = now + seconds
        self._queue.queue_last(item)
        return events.ItemRetried(item.id, outcome.error or "", item.tries + 1, self._retries + 1, seconds)

    def _release_slot(self, item: ItemState, crash: str, step: StepResult, now: float) -> None:
        """A crash during shutdown does not count against the slot."""
        step.events.extend(self._queue.release_slot(item, "" if self._shutdown else crash, now))
