"""The brain of a run: an event and the time in, commands and news out."""

from collections.abc import Iterable

from agentos.core import events
from agentos.core.aftermath import Aftermath
from agentos.core.backoff import Jitter
from agentos.core.commands import FreezeWorker, KillWorker, StartWorker, StopWorker, ThawWorker
from agentos.core.control import Control
from agentos.core.credentials import Credential
from agentos.core.decision import Decision
from agentos.core.episodes import Episodes, Standstill
from agentos.core.leasing import Leasing, granted
from agentos.core.limits import Limits
from agentos.core.money import Purse
from agentos.core.patience import Patience
from agentos.core.pool import Pool
from agentos.core.results import Ending, Outcome, stumbled
from agentos.core.room import Room
from agentos.core.roster import Roster
from agentos.core.stopping import EXIT_CODES, Stop

HEARTBEAT = 60.0


class Run:
    """Starts nothing, reads no clock, prints nothing; the coordinator is its hands."""

    def __init__(
        self,
        items: tuple[str, ...],
        pool: Pool,
        limits: Limits,
        jitter: Jitter,
        now: float,
    ) -> None:
        self._limits = limits
        # Without any key from the beginning, nobody is to be held up for want of one.
        self._keyed = bool(pool.keys.names())
        self._purse = Purse(limits.prices, limits.budget)
        self._leasing = Leasing(pool, jitter, self._purse)
        self._episodes = Episodes(pool, limits.max_wait)
        self._room = Room()
        self._roster = Roster(items, limits.parallel, jitter)
        self._stop = Stop()
        self._control = Control(self._roster, self._stop)
        self._aftermath = Aftermath(self._roster, self._stop, limits.retries, jitter)
        self._patience = Patience(limits.timeout)
        self._started_at = now
        self._beat_at = now + HEARTBEAT
        self.over = False

    # What is told.

    def begin(self, now: float) -> Decision:
        decision = Decision()
        slots = self._leasing.pool.keys.usable_slots(now)
        if 0 < slots < min(self._limits.parallel, len(self._roster.works)):
            decision.news.append(events.KeysFewerThanWorkers(slots, self._limits.parallel))
        return self._settle(decision, now)

    def hear(self, event: events.Event, now: float) -> Decision:
        return self.hear_all((event,), now)

    def hear_all(self, heard: Iterable[events.Event], now: float) -> Decision:
        """What follows is decided once, of all that is known by now."""
        return self._follow(self.take(heard, now), now)

    def take(self, heard: Iterable[events.Event], now: float) -> Decision:
        """What was heard, and the keys that may be had: nobody waits for one until all else is thought of."""
        decision = Decision()
        for event in heard:
            self._hear(event, decision, now)
        self._give(decision, now)
        return decision

    def follow(self, now: float) -> Decision:
        """All else, after `take`."""
        return self._follow(Decision(), now)

    def wake(self, now: float) -> Decision:
        """Time has passed, nothing else."""
        return self.hear_all((), now)

    def change_credentials(self, credentials: list[Credential], now: float) -> Decision:
        return self._settle(Decision(news=self._leasing.replaced(credentials)), now)

    # What can be asked.

    @property
    def leasing(self) -> Leasing:
        return self._leasing

    def deadline(self, now: float) -> float | None:
        """When `wake` is due if nothing happens before."""
        moments = [self._patience.deadline(work) for work in self._roster.running()]
        moments += [self._roster.due_at(now), self._episodes.wake_at(now), self._stop.kill_at, self._beat_at]
        if not self._control.paused:
            moments.append(self._leasing.wake_at(now))
        return min((moment for moment in moments if moment is not None), default=None)

    def exit_code(self) -> int:
        if self._stop.exit_code is not None:
            return self._stop.exit_code
        endings = self._roster.endings()
        # Nobody stopped the run, and yet an item stopped: a limit outside, told by its worker.
        return 75 if Ending.INTERRUPTED in endings else int(Ending.FAILED in endings)

    def parked(self) -> list[str]:
        """Items that wait for a person."""
        return self._roster.parked()

    # What each event means.

    def _hear(self, event: events.Event, decision: Decision, now: float) -> None:
        match event:
            case events.LeaseWanted() | events.LeaseReturned():
                self._hear_lease(event, decision, now)
            case events.DiskFull() | events.DiskFreed():
                self._hear_disk(event, decision, now)
            case events.StopRequested():
                self._hear_stop(event, decision, now)
            case events.ItemDecided():
                self._hear_decided(event)
            case (
                events.PauseRequested()
                | events.ResumeRequested()
                | events.RetryRequested()
                | events.WorkersRequested()
            ):
                self._control.hear(event, decision, now)
            case events.RunSuspended():
                decision.commands.extend(FreezeWorker(work.item) for work in self._roster.running())
            case events.RunContinued():
                self._hear_continued(event, decision)
            case _:
                self._hear_worker(event, decision, now)

    def _hear_worker(self, event: events.Event, decision: Decision, now: float) -> None:
        match event:
            case events.WorkerEnded():
                self._hear_end(event, decision, now)
            case events.WorkerNotStarted():
                self._aftermath.not_started(event, decision, now)
            case (
                events.WorkerStarted()
                | events.LineWritten()
                | events.NodeStarted()
                | events.NodeFinished()
                | events.WorkerReported()
            ):
                self._roster.works[event.item].hear(event, now)
            case _:
                pass

    def _hear_lease(
        self,
        event: events.LeaseWanted | events.LeaseReturned,
        decision: Decision,
        now: float,
    ) -> None:
        work = self._roster.works[event.item]
        work.alive(now)
        if isinstance(event, events.LeaseWanted):
            if not self._stop:
                self._leasing.wanted(event, now)
            work.wait(now)
        else:
            self._patience.saw_call(event.seconds)
            work.usage += event.usage
            decision.news.extend(self._leasing.returned(event, now))

    def _hear_disk(self, event: events.DiskFull | events.DiskFreed, decision: Decision, now: float) -> None:
        work = self._roster.works[event.item]
        work.alive(now)
        if isinstance(event, events.DiskFull):
            work.stop_clock(now)
        else:
            work.go_on(now)
        decision.news.extend(self._room.hear(event, now))

    def _hear_stop(self, event: events.StopRequested, decision: Decision, now: float) -> None:
        if self._stop.is_by_signal:
            self._kill_all(decision)
        else:
            self._begin_stop(events.StopBegan(event.signal), EXIT_CODES[event.signal], decision, now)

    def _hear_decided(self, event: events.ItemDecided) -> None:
        if not self._stop:
            self._roster.take_up(event.item)

    def _hear_continued(self, event: events.RunContinued, decision: Decision) -> None:
        """The time in between was nobody's."""
        self._beat_at += event.seconds
        self._stop.skip(event.seconds)
        for work in self._roster.running():
            work.skip(event.seconds)
            decision.commands.append(ThawWorker(work.item))

    def _hear_end(self, event: events.WorkerEnded, decision: Decision, now: float) -> None:
        self._leasing.gone(event.item)
        decision.news.extend(self._room.gone(event.item, now))
        self._aftermath.ended(event, decision, now)

    # What follows from all of it.

    def _settle(self, decision: Decision, now: float) -> Decision:
        self._give(decision, now)
        return self._follow(decision, now)

    def _give(self, decision: Decision, now: float) -> None:
        decision.news.extend(self._leasing.weather_news(now))
        self._grant(decision, now)

    def _follow(self, decision: Decision, now: float) -> Decision:
        episodes = self._episodes.look(now)
        decision.news.extend([] if self._stop else episodes)
        if standstill := self._standstill(now):
            began = events.StopBegan(standstill.reason, standstill.detail, standstill.seconds)
            self._begin_stop(began, standstill.exit_code, decision, now)
        self._watch(decision, now)
        self._start(decision, now)
        self._strand(decision)
        self._beat(decision, now)
        self._finish(decision, now)
        return decision

    def _grant(self, decision: Decision, now: float) -> None:
        for lease in self._leasing.grants(now) if not self._control.paused else ():
            waited = self._roster.works[lease.want.holder].serve(now)
            decision.commands.append(granted(lease))
            decision.news.append(
                events.LeaseGranted(lease.want.holder, lease.credential.name, lease.id, waited)
            )

    def _standstill(self, now: float) -> Standstill | None:
        if self._stop or self._control.paused or not self._roster.is_unfinished():
            return None
        if self._purse.refused and not self._leasing.pool.held():
            return Standstill(75, "budget", self._purse.why_refused())
        return self._episodes.standstill(now) if self._keyed else None

    def _begin_stop(self, began: events.StopBegan, exit_code: int, decision: Decision, now: float) -> None:
        if not self._stop:
            decision.commands.extend(StopWorker(work.item) for work in self._roster.running())
        self._stop.begin(began, exit_code, now)
        decision.news.append(began)
        self._end_queue(Outcome(Ending.INTERRUPTED), decision)

    def _watch(self, decision: Decision, now: float) -> None:
        for work in [work for work in self._roster.running() if self._patience.is_over(work, now)]:
            if self._patience.ends_with(work, now):
                decision.commands.append(KillWorker(work.item))
            if quiet := self._patience.wonders_about(work, now):
                decision.news.append(quiet)
        if self._stop.is_overdue(now):
            self._kill_all(decision)

    def _kill_all(self, decision: Decision) -> None:
        self._stop.kill_at = None
        doomed = tuple(work.item for work in self._roster.running())
        if doomed:
            decision.commands.extend(KillWorker(item) for item in doomed)
            decision.news.append(events.KillBegan(doomed))

    def _start(self, decision: Decision, now: float) -> None:
        while self._may_start(now) and (started := self._roster.start_next(now)):
            decision.news.append(started)
            decision.commands.append(StartWorker(started.item, started.slot, started.attempt))

    def _may_start(self, now: float) -> bool:
        if not self._roster.is_queueing or self._purse.refused or self._control.paused or not self._room:
            return False
        # With nobody at work, one has to start: it is its call that finds out whether keys are back.
        return not (self._keyed and self._roster.running() and self._episodes.hold_starts(now))

    def _strand(self, decision: Decision) -> None:
        """Without a place to run in, what is left cannot be done."""
        if self._roster.is_stranded():
            self._end_queue(stumbled("no worker slot is left"), decision)

    def _end_queue(self, outcome: Outcome, decision: Decision) -> None:
        decision.news.extend(self._roster.end(work, outcome) for work in self._roster.clear_queue())

    def _beat(self, decision: Decision, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT
            decision.news.append(events.Heartbeat(now - self._started_at))

    def _finish(self, decision: Decision, now: float) -> None:
        if not self.over and not self._roster.is_unfinished():
            self.over = True
            decision.news.append(
                events.RunEnded(
                    self.exit_code(), now - self._started_at, self._roster.waited(), self._stop.detail
                )
            )
