"""The brain of a run: an event and the time in, commands and news out."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core import events
from agentos.core.backoff import Jitter, backoff
from agentos.core.bounds import MAX_PARALLEL
from agentos.core.commands import Command, FreezeWorker, KillWorker, StartWorker, StopWorker, ThawWorker
from agentos.core.credentials import Credential
from agentos.core.episodes import Episodes, Standstill
from agentos.core.health import Slot
from agentos.core.leasing import Leasing, granted
from agentos.core.money import PriceList, Purse
from agentos.core.neighbours import Note
from agentos.core.pool import Pool
from agentos.core.requests import no_retry, no_workers, not_paused, paused_already, stopping_already
from agentos.core.results import Ending, Outcome, stumbled
from agentos.core.room import Room
from agentos.core.work import Work

KILL_AFTER = 4.0
SHORTEST_USUAL = 30.0
USUAL_FACTOR = 4
HEARTBEAT = 60.0
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use: workers, tries, seconds, dollars."""

    parallel: int = 1
    retries: int = 2
    timeout: float = 1800.0
    max_wait: float = 3600.0
    budget: float | None = None
    prices: PriceList = field(default_factory=PriceList)


@dataclass(slots=True)
class Decision:
    commands: list[Command] = field(default_factory=list)
    news: list[events.News] = field(default_factory=list)


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
        self._jitter = jitter
        # Without any key from the beginning, nobody is to be held up for want of one.
        self._keyed = bool(pool.keys.names())
        self._purse = Purse(limits.prices, limits.budget)
        self._leasing = Leasing(pool, jitter, self._purse)
        self._episodes = Episodes(pool, limits.max_wait)
        self._room = Room()
        self._works = {item: Work(item) for item in items}
        self._queue = deque(self._works.values())
        # Those of the queue that have been tried before; the others may be thousands.
        self._postponed: list[Work] = []
        self._parked: dict[str, None] = {}
        self._workers = limits.parallel
        self._slots = [Slot(number) for number in range(1, limits.parallel + 1)]
        self._paused_since: float | None = None
        self._stopping: str | None = None
        self._kill_at: float | None = None
        self._exit_code: int | None = None
        self._detail = ""
        self._started_at = now
        self._longest_call = 0.0
        self._beat_at = now + HEARTBEAT
        self.over = False

    # What is told.

    def begin(self, now: float) -> Decision:
        decision = Decision()
        slots = self._leasing.pool.keys.usable_slots(now)
        if 0 < slots < min(self._limits.parallel, len(self._works)):
            decision.news.append(events.KeysFewerThanWorkers(slots, self._limits.parallel))
        return self._settle(decision, now)

    def hear(self, event: events.Event, now: float) -> Decision:
        return self.hear_all((event,), now)

    def hear_all(self, heard: Iterable[events.Event], now: float) -> Decision:
        """What follows is decided once, of all that is known by now."""
        decision = Decision()
        for event in heard:
            self._hear(event, decision, now)
        return self._settle(decision, now)

    def _hear(self, event: events.Event, decision: Decision, now: float) -> None:
        match event:
            case events.LeaseWanted() | events.LeaseReturned():
                self._hear_lease(event, decision, now)
            case events.DiskFull() | events.DiskFreed():
                self._hear_disk(event, decision, now)
            case events.StopRequested():
                self._hear_stop(event, decision, now)
            case events.ItemDecided():
                self._take_up(self._works[event.item])
            case (
                events.PauseRequested()
                | events.ResumeRequested()
                | events.RetryRequested()
                | events.WorkersRequested()
            ):
                self._hear_request(event, decision, now)
            case events.RunSuspended():
                decision.commands.extend(FreezeWorker(work.item) for work in self._running())
            case events.RunContinued():
                self._hear_continued(event, decision)
            case _:
                self._hear_worker(event, decision, now)

    def _hear_worker(self, event: events.Event, decision: Decision, now: float) -> None:
        match event:
            case events.WorkerEnded():
                self._hear_end(event, decision, now)
            case events.WorkerNotStarted():
                self._hear_no_start(event, decision, now)
            case (
                events.WorkerStarted()
                | events.LineWritten()
                | events.NodeStarted()
                | events.NodeFinished()
                | events.WorkerReported()
            ):
                self._works[event.item].hear(event, now)
            case _:
                pass

    def wake(self, now: float) -> Decision:
        """Time has passed, nothing else."""
        return self._settle(Decision(), now)

    def learn(self, notes: list[Note]) -> None:
        """What the other runs on this host have done with the keys."""
        for note in notes:
            self._leasing.pool.hear(note)

    def take_notes(self) -> list[Note]:
        """What the other runs on this host should know since the last call."""
        return self._leasing.take_notes()

    def take_turn(self, ours: bool) -> None:
        """Whether keys may be given out now."""
        self._leasing.in_turn = ours

    def neighbours(self) -> set[str]:
        return self._leasing.pool.foreign_runs()

    def change_credentials(self, credentials: list[Credential], now: float) -> Decision:
        return self._settle(Decision(news=self._leasing.replaced(credentials)), now)

    def deadline(self, now: float) -> float | None:
        """When `wake` is due if nothing happens before."""
        moments = [work.deadline(self._limits.timeout, self._usual()) for work in self._running()]
        moments += [self._episodes.wake_at(now), self._kill_at, self._beat_at]
        if self._paused_since is None:
            moments.append(self._leasing.wake_at(now))
        if self._queue and not self._stopping:
            moments.extend(slot.rests_until for slot in self._slots if slot.rests_until > now)
            moments.extend(work.not_before for work in self._postponed if work.not_before > now)
        return min((moment for moment in moments if moment is not None), default=None)

    # What each event means.

    def _hear_lease(
        self,
        event: events.LeaseWanted | events.LeaseReturned,
        decision: Decision,
        now: float,
    ) -> None:
        work = self._works[event.item]
        work.alive(now)
        if isinstance(event, events.LeaseWanted):
            if not self._stopping:
                self._leasing.wanted(event, now)
            work.wait(now)
        else:
            self._longest_call = max(self._longest_call, event.seconds)
            work.usage += event.usage
            decision.news.extend(self._leasing.returned(event, now))

    def _hear_disk(self, event: events.DiskFull | events.DiskFreed, decision: Decision, now: float) -> None:
        work = self._works[event.item]
        work.alive(now)
        if isinstance(event, events.DiskFull):
            work.stop_clock(now)
        else:
            work.go_on(now)
        decision.news.extend(self._room.hear(event, now))

    def _hear_stop(self, event: events.StopRequested, decision: Decision, now: float) -> None:
        if self._stopping and self._exit_code in EXIT_CODES.values():
            self._kill_all(decision)
            return
        self._exit_code = EXIT_CODES[event.signal]
        self._stop(events.StopBegan(event.signal), decision, now)

    def _hear_request(self, event: events.Request, decision: Decision, now: float) -> None:
        """What somebody asks for from another terminal."""
        if self._stopping:
            decision.news.append(stopping_already())
            return
        match event:
            case events.PauseRequested():
                self._pause(event, decision, now)
            case events.ResumeRequested():
                self._resume(decision, now)
            case events.RetryRequested():
                self._requeue(event.item, decision, now)
            case events.WorkersRequested():
                self._change_workers(event.workers, decision)

    def _pause(self, event: events.PauseRequested, decision: Decision, now: float) -> None:
        staying = [work for work in self._running() if not work.set_aside]
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
        self._paused_since = None

    def _requeue(self, item: str, decision: Decision, now: float) -> None:
        work = self._works.get(item)
        if work is None or work.ended is None or not work.try_again(now):
            decision.news.append(no_retry(item, work, tuple(self._works)))
            return
        self._queue.appendleft(work)
        decision.news.append(events.ItemRequeued(item))

    def _change_workers(self, workers: int, decision: Decision) -> None:
        wanted = min(workers, MAX_PARALLEL)
        if wanted < 1 or wanted == self._workers:
            decision.news.append(no_workers(wanted))
            return
        decision.news.append(events.WorkersChanged(wanted, self._workers))
        self._workers = wanted
        # Those at work go on; what is retired stays so, and a sound place is added in its stead.
        while sum(not slot.retired for slot in self._slots) < wanted:
            self._slots.append(Slot(len(self._slots) + 1))

    def _hear_continued(self, event: events.RunContinued, decision: Decision) -> None:
        """The time in between was nobody's."""
        self._beat_at += event.seconds
        self._kill_at = None if self._kill_at is None else self._kill_at + event.seconds
        for work in self._running():
            work.skip(event.seconds)
            decision.commands.append(ThawWorker(work.item))

    def _hear_no_start(self, event: events.WorkerNotStarted, decision: Decision, now: float) -> None:
        work = self._works[event.item]
        work.attempts -= 1
        work.stop_clock(now)
        self._leave_slot(work, event.reason, decision, now)
        work.not_before = now + 1.0
        if self._stopping:
            self._end(work, Outcome(Ending.INTERRUPTED), decision, now)
        else:
            self._queue.appendleft(work)
            self._postponed.append(work)

    def _hear_end(self, event: events.WorkerEnded, decision: Decision, now: float) -> None:
        work = self._works[event.item]
        self._leasing.gone(event.item)
        decision.news.extend(self._room.gone(event.item, now))
        work.stop_clock(now)
        outcome = work.outcome(event.cause, bool(self._stopping) or work.set_aside)
        self._leave_slot(work, "" if work.reported else event.cause, decision, now)
        if outcome.ending is Ending.ELSEWHERE and not self._stopping and work.look_again_elsewhere():
            work.attempts -= 1
            self._queue.append(work)
        elif outcome.ending is Ending.INTERRUPTED and work.set_aside and not self._stopping:
            work.forgiven += 1
            self._queue.appendleft(work)
            decision.news.append(events.ItemSetAside(work.item, work.node))
        elif outcome.may_pass and work.tries <= self._limits.retries and not self._stopping:
            self._retry(work, outcome, decision, now)
        else:
            self._end(work, outcome, decision, now)

    def _take_up(self, work: Work) -> None:
        """A parked item that a person has decided on goes on; its tries so far are not held against it."""
        if work.item in self._parked and not self._stopping:
            del self._parked[work.item]
            work.ended, work.forgiven = None, work.attempts
            self._queue.append(work)

    def _leave_slot(self, work: Work, crash: str, decision: Decision, now: float) -> None:
        slot = next(slot for slot in self._slots if slot.item == work.item)
        slot.item = None
        if not crash or self._stopping or work.timed_out or work.set_aside:
            slot.succeeded()
        elif (seconds := slot.stumbled(now, self._jitter)) is not None:
            left = sum(not other.retired for other in self._slots)
            decision.news.append(
                events.SlotRetired(slot.number, left)
                if slot.retired
                else events.SlotRested(slot.number, seconds, crash)
            )

    def _retry(self, work: Work, outcome: Outcome, decision: Decision, now: float) -> None:
        seconds = backoff(work.tries, self._jitter)
        work.not_before = now + seconds
        self._queue.append(work)
        self._postponed.append(work)
        decision.news.append(
            events.ItemRetried(
                work.item,
                outcome.error or "",
                work.tries + 1,
                self._limits.retries + 1,
                seconds,
            )
        )

    def _end(self, work: Work, outcome: Outcome, decision: Decision, now: float) -> None:
        work.ended = outcome
        if outcome.ending is Ending.PARKED:
            self._parked[work.item] = None
        decision.news.append(
            events.ItemEnded(
                work.item,
                outcome,
                work.spent + work.waited,
                work.usage,
                work.attempts,
                work.node,
            )
        )

    # What follows from all of it.

    def _settle(self, decision: Decision, now: float) -> Decision:
        decision.news.extend(self._leasing.weather_news(now))
        self._grant(decision, now)
        episodes = self._episodes.look(now)
        decision.news.extend([] if self._stopping else episodes)
        waits = self._stopping or self._paused_since is not None
        if not waits and self._unfinished() and (standstill := self._standstill(now)):
            self._exit_code = standstill.exit_code
            self._stop(
                events.StopBegan(standstill.reason, standstill.detail, standstill.seconds), decision, now
            )
        self._watch(decision, now)
        self._start(decision, now)
        self._strand(decision, now)
        self._beat(decision, now)
        self._finish(decision, now)
        return decision

    def _beat(self, decision: Decision, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT
            decision.news.append(events.Heartbeat(now - self._started_at))

    def _standstill(self, now: float) -> Standstill | None:
        if self._purse.refused and not self._leasing.pool.held():
            spent = (
                f"the next call would pass --budget {self._limits.budget:.2f} ({self._purse.spent:.4f} spent)"
            )
            return Standstill(75, "budget", spent)
        return self._episodes.standstill(now) if self._keyed else None

    def _grant(self, decision: Decision, now: float) -> None:
        for lease in self._leasing.grants(now) if self._paused_since is None else ():
            waited = self._works[lease.want.holder].serve(now)
            decision.commands.append(granted(lease))
            decision.news.append(
                events.LeaseGranted(lease.want.holder, lease.credential.name, lease.id, waited)
            )

    def _watch(self, decision: Decision, now: float) -> None:
        for work in self._running():
            if work.is_over_time(self._limits.timeout, now):
                work.timed_out = True
                decision.commands.append(KillWorker(work.item))
            elif work.lingers(now) or work.overstays(now):
                decision.commands.append(KillWorker(work.item))
            if quiet := work.falls_quiet(self._usual(), now):
                decision.news.append(quiet)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_all(decision)

    def _start(self, decision: Decision, now: float) -> None:
        while (work := self._next(now)) and (slot := self._free_slot(now)):
            self._queue.remove(work)
            self._postponed = [other for other in self._postponed if other is not work]
            slot.item = work.item
            work.start(now)
            decision.news.append(events.ItemStarted(work.item, slot.number, work.attempts))
            decision.commands.append(StartWorker(work.item, slot.number, work.attempts))

    def _strand(self, decision: Decision, now: float) -> None:
        """Without a place to run in, what is left cannot be done."""
        while self._queue and all(slot.retired for slot in self._slots):
            self._end(self._queue.popleft(), stumbled("no worker slot is left"), decision, now)

    def _next(self, now: float) -> Work | None:
        if not self._queue or self._stopping or self._purse.refused or self._paused_since is not None:
            return None
        if not self._room:
            return None
        # With nobody at work, one has to start: it is its call that finds out whether keys are back.
        if self._keyed and self._running() and self._episodes.hold_starts(now):
            return None
        return next((work for work in self._queue if work.not_before <= now), None)

    def _free_slot(self, now: float) -> Slot | None:
        if len(self._running()) >= self._workers:
            return None
        return next((slot for slot in self._slots if slot.free(now)), None)

    def _stop(self, began: events.StopBegan, decision: Decision, now: float) -> None:
        if not self._stopping:
            decision.commands.extend(StopWorker(work.item) for work in self._running())
        self._stopping, self._detail = began.reason, began.detail
        self._kill_at = now + KILL_AFTER
        decision.news.append(began)
        while self._queue:
            self._end(self._queue.popleft(), Outcome(Ending.INTERRUPTED), decision, now)

    def _kill_all(self, decision: Decision) -> None:
        self._kill_at = None
        doomed = tuple(work.item for work in self._running())
        if doomed:
            decision.commands.extend(KillWorker(item) for item in doomed)
            decision.news.append(events.KillBegan(doomed))

    def _finish(self, decision: Decision, now: float) -> None:
        if not self.over and not self._unfinished():
            self.over = True
            decision.news.append(
                events.RunEnded(
                    self.exit_code(),
                    now - self._started_at,
                    self.waited(),
                    self._detail,
                )
            )

    def exit_code(self) -> int:
        if self._exit_code is not None:
            return self._exit_code
        endings = {work.ended.ending for work in self._works.values() if work.ended}
        # Nobody stopped the run, and yet an item stopped: a limit outside, told by its worker.
        return 75 if Ending.INTERRUPTED in endings else int(Ending.FAILED in endings)

    def parked(self) -> list[str]:
        """Items that wait for a person."""
        return list(self._parked)

    def waited(self) -> float:
        """Seconds that items have waited for keys, added up."""
        return sum(work.waited for work in self._works.values())

    def _usual(self) -> float:
        """After how much silence an item is worth a word: a multiple of the longest call so far."""
        return max(SHORTEST_USUAL, USUAL_FACTOR * self._longest_call)

    def _running(self) -> list[Work]:
        return [self._works[slot.item] for slot in self._slots if slot.item]

    def _unfinished(self) -> bool:
        return bool(self._queue or self._running())
