"""What becomes of an item when its worker has ended."""

from agentos.core.backoff import Jitter, backoff
from agentos.core.protocol import events
from agentos.core.protocol.commands import StepResult
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.queue import WorkQueue
from agentos.core.scheduling.shutdown import Shutdown

START_AGAIN = 1.0


class RetryPolicy:
    """It goes back into the queue, or it has ended; once the run stops, it always has."""

    def __init__(self, queue: WorkQueue, stop: Shutdown, retries: int, jitter: Jitter) -> None:
        self._queue = queue
        self._stop = stop
        self._retries = retries
        self._jitter = jitter

    def not_started(self, event: events.WorkerStartFailed, decision: StepResult, now: float) -> None:
        """No fault of the item's: the attempt does not count."""
        work = self._queue.items[event.item]
        work.attempts -= 1
        work.stop_clock(now)
        self._leave_slot(work, event.reason, decision, now)
        work.not_before = now + START_AGAIN
        if self._stop:
            decision.news.append(self._queue.end(work, Outcome(Ending.INTERRUPTED)))
        else:
            self._queue.queue_first(work)

    def ended(self, event: events.WorkerExited, decision: StepResult, now: float) -> None:
        work = self._queue.items[event.item]
        work.stop_clock(now)
        outcome = work.outcome(event.cause, bool(self._stop) or work.suspended)
        self._leave_slot(work, "" if work.reported else event.cause, decision, now)
        if self._stop or not self._should_retry(work, outcome, decision, now):
            decision.news.append(self._queue.end(work, outcome))

    def _should_retry(self, work: ItemState, outcome: Outcome, decision: StepResult, now: float) -> bool:
        if outcome.ending is Ending.ELSEWHERE and work.look_again_elsewhere():
            work.attempts -= 1
            self._queue.queue_last(work)
        elif outcome.ending is Ending.INTERRUPTED and work.suspended:
            work.attempt_offset += 1
            self._queue.queue_first(work)
            decision.news.append(events.ItemSuspended(work.item, work.node))
        elif outcome.retryable and work.tries <= self._retries:
            decision.news.append(self._retry(work, outcome, now))
        else:
            return False
        return True

    def _retry(self, work: ItemState, outcome: Outcome, now: float) -> events.ItemRetried:
        seconds = backoff(work.tries, self._jitter)
        work.not_before = now + seconds
        self._queue.queue_last(work)
        return events.ItemRetried(work.item, outcome.error or "", work.tries + 1, self._retries + 1, seconds)

    def _leave_slot(self, work: ItemState, crash: str, decision: StepResult, now: float) -> None:
        """Whoever is stopped may crash: that is not held against the slot."""
        decision.news.extend(self._queue.release_slot(work, "" if self._stop else crash, now))
