"""The brain of a run: an event and the time in, commands and news out."""

from collections.abc import Iterable

from agentos.core.backoff import Jitter
from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    FreezeWorker,
    KillWorker,
    StartWorker,
    StepResult,
    StopWorker,
    ThawWorker,
)
from agentos.core.protocol.results import Ending, Outcome, failed_transient
from agentos.core.quota.budget import Budget
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.control import Control
from agentos.core.scheduling.disk_wait import DiskWait
from agentos.core.scheduling.pool_monitor import PoolMonitor, StopReason
from agentos.core.scheduling.queue import WorkQueue
from agentos.core.scheduling.retry_policy import RetryPolicy
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.shutdown import EXIT_CODES, Shutdown
from agentos.core.scheduling.watchdog import Watchdog

HEARTBEAT = 60.0


class Scheduler:
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
        self._has_keys = bool(pool.keys.names())
        self._budget = Budget(limits.prices, limits.budget)
        self._lease_manager = LeaseManager(pool, jitter, self._budget)
        self._pool_monitor = PoolMonitor(pool, limits.max_wait)
        self._disk_wait = DiskWait()
        self._queue = WorkQueue(items, limits.parallel, jitter)
        self._shutdown = Shutdown()
        self._control = Control(self._queue, self._shutdown)
        self._retry_policy = RetryPolicy(self._queue, self._shutdown, limits.retries, jitter)
        self._watchdog = Watchdog(limits.timeout)
        self._started_at = now
        self._beat_at = now + HEARTBEAT
        self.over = False

    # What is told.

    def begin(self, now: float) -> StepResult:
        decision = StepResult()
        slots = self._lease_manager.pool.keys.usable_slots(now)
        if 0 < slots < min(self._limits.parallel, len(self._queue.items)):
            decision.news.append(events.KeysFewerThanWorkers(slots, self._limits.parallel))
        return self._decide(decision, now)

    def handle(self, event: events.Event, now: float) -> StepResult:
        return self.handle_all((event,), now)

    def handle_all(self, heard: Iterable[events.Event], now: float) -> StepResult:
        """What follows is decided once, of all that is known by now."""
        return self._schedule(self.grant_phase(heard, now), now)

    def grant_phase(self, heard: Iterable[events.Event], now: float) -> StepResult:
        """What was heard, and the keys that may be had: nobody waits for one until all else is thought of."""
        decision = StepResult()
        for event in heard:
            self._handle_event(event, decision, now)
        self._grant_leases(decision, now)
        return decision

    def follow_up(self, now: float) -> StepResult:
        """All else, after `take`."""
        return self._schedule(StepResult(), now)

    def wake(self, now: float) -> StepResult:
        """Time has passed, nothing else."""
        return self.handle_all((), now)

    def change_credentials(self, credentials: list[Credential], now: float) -> StepResult:
        return self._decide(StepResult(news=self._lease_manager.replace_credentials(credentials)), now)

    # What can be asked.

    @property
    def lease_manager(self) -> LeaseManager:
        return self._lease_manager

    def deadline(self, now: float) -> float | None:
        """When `wake` is due if nothing happens before."""
        moments = [self._watchdog.deadline(work) for work in self._queue.running()]
        moments += [
            self._queue.due_at(now),
            self._pool_monitor.wake_at(now),
            self._shutdown.kill_at,
            self._beat_at,
        ]
        if not self._control.paused:
            moments.append(self._lease_manager.wake_at(now))
        return min((moment for moment in moments if moment is not None), default=None)

    def exit_code(self) -> int:
        if self._shutdown.exit_code is not None:
            return self._shutdown.exit_code
        endings = self._queue.endings()
        # Nobody stopped the run, and yet an item stopped: a limit outside, told by its worker.
        return 75 if Ending.INTERRUPTED in endings else int(Ending.FAILED in endings)

    def parked(self) -> list[str]:
        """Items that wait for a person."""
        return self._queue.parked()

    # What each event means.

    def _handle_event(self, event: events.Event, decision: StepResult, now: float) -> None:
        match event:
            case events.LeaseRequested() | events.LeaseReleased():
                self._handle_lease_event(event, decision, now)
            case events.DiskFull() | events.DiskFreed():
                self._handle_disk_event(event, decision, now)
            case events.StopRequested():
                self._handle_stop_request(event, decision, now)
            case events.ItemDecided():
                self._handle_decision(event)
            case (
                events.PauseRequested()
                | events.ResumeRequested()
                | events.RetryRequested()
                | events.WorkerCountRequested()
            ):
                self._control.handle(event, decision, now)
            case events.RunSuspended():
                decision.commands.extend(FreezeWorker(work.item) for work in self._queue.running())
            case events.RunContinued():
                self._handle_continued(event, decision)
            case _:
                self._handle_worker_event(event, decision, now)

    def _handle_worker_event(self, event: events.Event, decision: StepResult, now: float) -> None:
        match event:
            case events.WorkerExited():
                self._handle_worker_end(event, decision, now)
            case events.WorkerStartFailed():
                self._retry_policy.not_started(event, decision, now)
            case (
                events.WorkerStarted()
                | events.LineWritten()
                | events.NodeStarted()
                | events.NodeFinished()
                | events.WorkerReported()
            ):
                self._queue.items[event.item].handle(event, now)
            case _:
                pass

    def _handle_lease_event(
        self,
        event: events.LeaseRequested | events.LeaseReleased,
        decision: StepResult,
        now: float,
    ) -> None:
        work = self._queue.items[event.item]
        work.record_activity(now)
        if isinstance(event, events.LeaseRequested):
            if not self._shutdown:
                self._lease_manager.request(event, now)
            work.start_wait(now)
        else:
            self._watchdog.saw_call(event.seconds)
            work.usage += event.usage
            decision.news.extend(self._lease_manager.release(event, now))

    def _handle_disk_event(
        self, event: events.DiskFull | events.DiskFreed, decision: StepResult, now: float
    ) -> None:
        work = self._queue.items[event.item]
        work.record_activity(now)
        if isinstance(event, events.DiskFull):
            work.stop_clock(now)
        else:
            work.resume_clock(now)
        decision.news.extend(self._disk_wait.handle(event, now))

    def _handle_stop_request(self, event: events.StopRequested, decision: StepResult, now: float) -> None:
        if self._shutdown.is_by_signal:
            self._kill_all(decision)
        else:
            self._begin_stop(events.ShutdownStarted(event.signal), EXIT_CODES[event.signal], decision, now)

    def _handle_decision(self, event: events.ItemDecided) -> None:
        if not self._shutdown:
            self._queue.resume_parked(event.item)

    def _handle_continued(self, event: events.RunContinued, decision: StepResult) -> None:
        """The time in between was nobody's."""
        self._beat_at += event.seconds
        self._shutdown.postpone(event.seconds)
        for work in self._queue.running():
            work.shift_clocks(event.seconds)
            decision.commands.append(ThawWorker(work.item))

    def _handle_worker_end(self, event: events.WorkerExited, decision: StepResult, now: float) -> None:
        self._lease_manager.drop_holder(event.item)
        decision.news.extend(self._disk_wait.drop_item(event.item, now))
        self._retry_policy.ended(event, decision, now)

    # What follows from all of it.

    def _decide(self, decision: StepResult, now: float) -> StepResult:
        self._grant_leases(decision, now)
        return self._schedule(decision, now)

    def _grant_leases(self, decision: StepResult, now: float) -> None:
        decision.news.extend(self._lease_manager.breaker_news(now))
        self._grant(decision, now)

    def _schedule(self, decision: StepResult, now: float) -> StepResult:
        episodes = self._pool_monitor.update(now)
        decision.news.extend([] if self._shutdown else episodes)
        if standstill := self._stop_reason(now):
            began = events.ShutdownStarted(standstill.reason, standstill.detail, standstill.seconds)
            self._begin_stop(began, standstill.exit_code, decision, now)
        self._enforce_deadlines(decision, now)
        self._start_items(decision, now)
        self._fail_stranded(decision)
        self._emit_heartbeat(decision, now)
        self._finish(decision, now)
        return decision

    def _grant(self, decision: StepResult, now: float) -> None:
        for lease in self._lease_manager.grants(now) if not self._control.paused else ():
            waited = self._queue.items[lease.request.holder].end_wait(now)
            decision.commands.append(lease.grant_command())
            decision.news.append(
                events.LeaseGranted(lease.request.holder, lease.credential.name, lease.id, waited)
            )

    def _stop_reason(self, now: float) -> StopReason | None:
        if self._shutdown or self._control.paused or not self._queue.is_unfinished():
            return None
        if self._budget.refused and not self._lease_manager.pool.held():
            return StopReason(75, "budget", self._budget.why_refused())
        return self._pool_monitor.stop_reason(now) if self._has_keys else None

    def _begin_stop(
        self, began: events.ShutdownStarted, exit_code: int, decision: StepResult, now: float
    ) -> None:
        if not self._shutdown:
            decision.commands.extend(StopWorker(work.item) for work in self._queue.running())
        self._shutdown.begin(began, exit_code, now)
        decision.news.append(began)
        self._end_queue(Outcome(Ending.INTERRUPTED), decision)

    def _enforce_deadlines(self, decision: StepResult, now: float) -> None:
        for work in [work for work in self._queue.running() if self._watchdog.is_over(work, now)]:
            if self._watchdog.times_out(work, now):
                decision.commands.append(KillWorker(work.item))
            if quiet := self._watchdog.quiet_event(work, now):
                decision.news.append(quiet)
        if self._shutdown.is_overdue(now):
            self._kill_all(decision)

    def _kill_all(self, decision: StepResult) -> None:
        self._shutdown.kill_at = None
        doomed = tuple(work.item for work in self._queue.running())
        if doomed:
            decision.commands.extend(KillWorker(item) for item in doomed)
            decision.news.append(events.WorkersKilled(doomed))

    def _start_items(self, decision: StepResult, now: float) -> None:
        while self._may_start(now) and (started := self._queue.start_next(now)):
            decision.news.append(started)
            decision.commands.append(StartWorker(started.item, started.slot, started.attempt))

    def _may_start(self, now: float) -> bool:
        if not self._queue.is_queueing or self._budget.refused or self._control.paused or not self._disk_wait:
            return False
        # With nobody at work, one has to start: it is its call that finds out whether keys are back.
        return not (self._has_keys and self._queue.running() and self._pool_monitor.hold_starts(now))

    def _fail_stranded(self, decision: StepResult) -> None:
        """Without a place to run in, what is left cannot be done."""
        if self._queue.is_stranded():
            self._end_queue(failed_transient("no worker slot is left"), decision)

    def _end_queue(self, outcome: Outcome, decision: StepResult) -> None:
        decision.news.extend(self._queue.end(work, outcome) for work in self._queue.clear_queue())

    def _emit_heartbeat(self, decision: StepResult, now: float) -> None:
        if now >= self._beat_at:
            self._beat_at = now + HEARTBEAT
            decision.news.append(events.Heartbeat(now - self._started_at))

    def _finish(self, decision: StepResult, now: float) -> None:
        if not self.over and not self._queue.is_unfinished():
            self.over = True
            decision.news.append(
                events.RunEnded(
                    self.exit_code(), now - self._started_at, self._queue.waited(), self._shutdown.detail
                )
            )
