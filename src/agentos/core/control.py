"""What people ask of a run from another terminal."""

from agentos.core import events
from agentos.core.bounds import MAX_PARALLEL
from agentos.core.commands import StopWorker
from agentos.core.decision import Decision
from agentos.core.items import called
from agentos.core.requests import no_retry, no_workers, not_paused, paused_already, stopping_already
from agentos.core.roster import Roster
from agentos.core.stopping import KILL_AFTER, Stop


class Control:
    """Each request changes something, or is declined with the reason."""

    def __init__(self, roster: Roster, stop: Stop) -> None:
        self._roster = roster
        self._stop = stop
        self._paused_since: float | None = None

    @property
    def paused(self) -> bool:
        return self._paused_since is not None

    def hear(
        self,
        event: events.PauseRequested
        | events.ResumeRequested
        | events.RetryRequested
        | events.WorkersRequested,
        decision: Decision,
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
            case events.WorkersRequested():
                self._change_workers(event.workers, decision)

    def _pause(self, event: events.PauseRequested, decision: Decision, now: float) -> None:
        staying = [work for work in self._roster.running() if not work.set_aside]
        if self._paused_since is not None and not (event.now and staying):
            decision.news.append(paused_already())
            return
        self._paused_since = now if self._paused_since is None else self._paused_since
        decision.news.append(events.RunPaused(event.now))
        for work in staying if event.now else ():
            work.put_aside(now + KILL_AFTER)
            decision.commands.append(StopWorker(work.item))

    def _resume(self, decision: Decision, now: float) -> None:
        if self._paused_since is None:
            decision.news.append(not_paused())
            return
        decision.news.append(events.RunResumed(now - self._paused_since))
        for work in self._roster.running():
            work.resume(self._paused_since, now)
        self._paused_since = None

    def _retry(self, item: str, decision: Decision, now: float) -> None:
        item = called(item, self._roster.works) or item
        work = self._roster.works.get(item)
        if work is None or not work.try_again(now):
            decision.news.append(no_retry(item, work, tuple(self._roster.works)))
            return
        self._roster.queue_first(work)
        decision.news.append(events.ItemRequeued(item))

    def _change_workers(self, workers: int, decision: Decision) -> None:
        wanted, before = min(workers, MAX_PARALLEL), self._roster.workers
        if wanted < 1 or wanted == before:
            decision.news.append(no_workers(wanted))
            return
        decision.news.append(events.WorkersChanged(wanted, before))
        self._roster.change_workers(wanted)
