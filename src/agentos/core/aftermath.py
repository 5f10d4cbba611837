"""What becomes of an item when its worker has ended."""

from agentos.core import events
from agentos.core.backoff import Jitter, backoff
from agentos.core.decision import Decision
from agentos.core.results import Ending, Outcome
from agentos.core.roster import Roster
from agentos.core.stopping import Stop
from agentos.core.work import Work

START_AGAIN = 1.0


class Aftermath:
    """It goes back into the queue, or it has ended; once the run stops, it always has."""

    def __init__(self, roster: Roster, stop: Stop, retries: int, jitter: Jitter) -> None:
        self._roster = roster
        self._stop = stop
        self._retries = retries
        self._jitter = jitter

    def not_started(self, event: events.WorkerNotStarted, decision: Decision, now: float) -> None:
        """No fault of the item's: the attempt does not count."""
        work = self._roster.works[event.item]
        work.attempts -= 1
        work.stop_clock(now)
        self._leave_slot(work, event.reason, decision, now)
        work.not_before = now + START_AGAIN
        if self._stop:
            decision.news.append(self._roster.end(work, Outcome(Ending.INTERRUPTED)))
        else:
            self._roster.queue_first(work)

    def ended(self, event: events.WorkerEnded, decision: Decision, now: float) -> None:
        work = self._roster.works[event.item]
        work.stop_clock(now)
        outcome = work.outcome(event.cause, bool(self._stop) or work.set_aside)
        self._leave_slot(work, "" if work.reported else event.cause, decision, now)
        if self._stop or not self._goes_on(work, outcome, decision, now):
            decision.news.append(self._roster.end(work, outcome))

    def _goes_on(self, work: Work, outcome: Outcome, decision: Decision, now: float) -> bool:
        if outcome.ending is Ending.ELSEWHERE and work.look_again_elsewhere():
            work.attempts -= 1
            self._roster.queue_last(work)
        elif outcome.ending is Ending.INTERRUPTED and work.set_aside:
            work.forgiven += 1
            self._roster.queue_first(work)
            decision.news.append(events.ItemSetAside(work.item, work.node))
        elif outcome.may_pass and work.tries <= self._retries:
            decision.news.append(self._retry(work, outcome, now))
        else:
            return False
        return True

    def _retry(self, work: Work, outcome: Outcome, now: float) -> events.ItemRetried:
        seconds = backoff(work.tries, self._jitter)
        work.not_before = now + seconds
        self._roster.queue_last(work)
        return events.ItemRetried(work.item, outcome.error or "", work.tries + 1, self._retries + 1, seconds)

    def _leave_slot(self, work: Work, crash: str, decision: Decision, now: float) -> None:
        """Whoever is stopped may crash: that is not held against the slot."""
        decision.news.extend(self._roster.leave(work, "" if self._stop else crash, now))
