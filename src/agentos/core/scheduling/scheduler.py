"""The scheduler of a run: a pure state machine. Events and the time go in; commands, and events to publish, come out.

A step has two phases, and the event loop runs them one after the other:

1. `grant_phase` handles everything that has happened and grants leases. It comes first and is short, because
   it runs while holding the lock on the key pool, which keeps every other run on this host from granting keys.
2. `follow_up` decides everything else: whether to stop the run, kill overdue workers, start items or end the run.
"""

from collections.abc import Iterable, Sequence

from agentos.core.backoff import Jitter
from agentos.core.constants import AUTO_PARALLEL
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    FreezeWorker,
    StartWorker,
    StepResult,
    StopWorker,
    ThawWorker,
)
from agentos.core.protocol.results import Ending, Outcome, TakenItem, failed_transient
from agentos.core.quota.budget import Budget, Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.core.scheduling.auto_workers import AutoWorkers, MachineLoad, WorkerDemand
from agentos.core.scheduling.control import STOP_TIMEOUT, Control, ControlEvent, Shutdown
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.pool_monitor import PoolMonitor, StopReason
from agentos.core.scheduling.queue import WorkQueue
from agentos.core.scheduling.retry_policy import RetryPolicy
from agentos.core.scheduling.watchdog import DiskWait, Watchdog

HEARTBEAT_INTERVAL = 60.0  # seconds


class Scheduler:
    """Decides what a run does next. It performs no I/O and reads no clock: the event loop does.

    Call `begin` once, then `handle_all` (or `grant_phase` followed by `follow_up`) for every batch of events, and
    `wake` when `deadline` has passed, until `over` is true. Every call returns a StepResult: events for the
    listeners and commands for the engine.

    The parts: WorkQueue holds the items and worker slots, LeaseManager the keys, RetryPolicy decides after a
    worker's exit, Watchdog enforces the workers' deadlines, PoolMonitor watches the keys as a whole, Control
    answers requests from other terminals, Shutdown is set once the run stops early.
    """

    def __init__(
        self,
        items: tuple[str, ...],
        pool: Pool,
        limits: Limits,
        jitter: Jitter,
        now: float,
    ) -> None:
        self._limits = limits
        self._roles: Sequence[RoleModel] = ()
        # A run that starts without keys (`agentos exec`) is never stopped or held back for lack of one.
        self._has_keys = bool(pool.keys.names())
        self._budget = Budget(limits.prices, limits.budget)
        self._gateway_stop: StopReason | None = None
        self._lease_manager = LeaseManager(pool, jitter, self._budget)
        self._pool_monitor = PoolMonitor(pool, limits.max_wait)
        self._disk_wait = DiskWait()
        self._queue = WorkQueue(items, max(1, limits.parallel), jitter)
        self._shutdown = Shutdown(self._queue)
        self._auto = AutoWorkers(limits.max_parallel) if limits.parallel == AUTO_PARALLEL else None
        self._control = Control(self._queue, self._shutdown, limits.max_parallel)
        self._retry_policy = RetryPolicy(self._queue, self._shutdown, limits.retries, jitter)
        self._watchdog = Watchdog(limits.timeout)
        self._is_endless = False
        self._machine = MachineLoad()
        self._started_at = now
        self._heartbeat_at = now + HEARTBEAT_INTERVAL
        self.over = False

    # Input.

    def set_roles(self, roles: Sequence[RoleModel]) -> None:
        """Set the models that the items call, so that `begin` can report too few keys. Call it before `begin`."""
        self._roles = roles

    def keep_open(self) -> None:
        """Let items join and leave, one attempt each; the run ends only when stopped. Call it before `begin`."""
        self._is_endless = True

    def set_machine_load(self, load: MachineLoad) -> None:
        """Set what the machine can spare, for `--parallel auto`. Call it every few seconds during the run."""
        self._machine = load
        if self._auto:
            self._auto.machine = load

    def choose_workers(self, now: float) -> int:
        """Return the number of workers to start with, chosen here for `--parallel auto`. Call it before `begin`."""
        if self._auto:
            self._queue.change_workers(self._auto.begin(self._queue.queued, self._slots(now), now))
        return self._queue.workers

    def begin(self, now: float) -> StepResult:
        """The first step: start the first items."""
        step = StepResult()
        self.choose_workers(now)
        fewest = self._pool_monitor.scarcest_keys(self._roles, self._queue.workers, now)
        if not self._auto and 0 < fewest.slots < min(fewest.workers, len(self._queue.items)):
            step.events.append(fewest)
        return self._decide(step, now)

    def handle(self, event: events.Event, now: float) -> StepResult:
        return self.handle_all((event,), now)

    def handle_all(self, received: Iterable[events.Event], now: float) -> StepResult:
        """Both phases of one step, for all these events together."""
        return self._schedule(self.grant_phase(received, now), now)

    def grant_phase(self, received: Iterable[events.Event], now: float) -> StepResult:
        """First phase of a step: update the state with these events and grant the leases that can be granted."""
        step = StepResult()
        for event in received:
            self._handle_event(event, step, now)
        self._grant_leases(step, now)
        return step

    def follow_up(self, now: float) -> StepResult:
        """Second phase of a step, after `grant_phase`: everything except granting leases."""
        return self._schedule(StepResult(), now)

    def wake(self, now: float) -> StepResult:
        """A step without events: only time has passed."""
        return self.handle_all((), now)

    def change_credentials(self, credentials: list[Credential], now: float) -> StepResult:
        return self._decide(StepResult(events=self._lease_manager.replace_credentials(credentials)), now)

    def skip_taken(self, taken: Iterable[TakenItem]) -> StepResult:
        """Do not start these queued items. A held one is checked once more after all others, unless the run stops."""
        step = StepResult()
        for found in taken:
            item = self._queue.items[found.item]
            self._queue.remove(item)
            is_held = found.outcome.ending is Ending.HELD_BY_OTHER_RUN
            if is_held and not self._shutdown and item.record_held():
                self._queue.queue_last(item)
            else:
                step.events.append(self._queue.end(item, found.outcome))
        return step

    # Queries.

    def next_items(self, now: float) -> list[str]:
        """The items whose workers the next step may start; during shutdown, those that it ends without starting them."""
        if self._shutdown:
            return self._queue.queued_items()
        return [item.id for item in self._queue.next_items(now)] if self._may_start(now) else []

    def queued_items(self) -> list[str]:
        return self._queue.queued_items()

    @property
    def lease_manager(self) -> LeaseManager:
        return self._lease_manager

    def deadline(self, now: float) -> float | None:
        """When `wake` is due if nothing happens before then."""
        moments = [self._watchdog.deadline(item) for item in self._queue.running()]
        moments += [
            now if self._shutdown and self._queue.has_queued else self._queue.due_at(now),
            self._pool_monitor.wake_at(now),
            self._shutdown.kill_at,
            self._heartbeat_at,
            self._auto.next_at if self._auto and self._may_adjust_workers() else None,
        ]
        if not self._control.paused:
            moments.append(self._lease_manager.wake_at(now))
        return min((moment for moment in moments if moment is not None), default=None)

    def exit_code(self) -> int:
        if self._shutdown.exit_code is not None:
            return self._shutdown.exit_code
        endings = self._queue.endings()
        # The run was not stopped, yet an item was interrupted: its worker hit an external limit, such as GitHub's.
        if Ending.INTERRUPTED in endings:
            return 75
        return int(not endings.isdisjoint((Ending.FAILED, Ending.FAILED_IN_OTHER_RUN)))

    def parked(self) -> list[str]:
        """Items that wait for a person's decision."""
        return self._queue.parked()

    # Phase 1: handle events.

    def _handle_event(self, event: events.Event, step: StepResult, now: float) -> None:
        match event:
            case events.LeaseRequested() | events.LeaseReleased():
                self._handle_lease_event(event, step, now)
            case events.DiskFull() | events.DiskFreed():
                item = self._queue.items[event.item]
                step.events.extend(self._disk_wait.handle(event, item, now))
            case events.BudgetReached():
                self._gateway_stop = StopReason(75, "budget", event.detail)
            case events.StopRequested():
                self._shutdown.handle_signal(event.signal, step, now)
            case events.ItemDecided():
                if not self._shutdown:
                    self._queue.resume_parked(event.item)
            case (
                events.PauseRequested()
                | events.ResumeRequested()
                | events.RetryRequested()
                | events.WorkerCountRequested()
            ):
                self._handle_request(event, step, now)
            case events.RunSuspended():
                step.commands.extend(FreezeWorker(item.id) for item in self._queue.running())
            case events.RunContinued():
                self._handle_continued(event, step, now)
            case _:
                self._handle_worker_event(event, step, now)

    def _handle_membership(
        self, event: events.ItemJoined | events.ItemWithdrawn, step: StepResult, now: float
    ) -> None:
        item = self._queue.items.get(event.item)
        if isinstance(event, events.ItemJoined):
            item = ItemState(event.item)
            item.timeout = event.timeout
            self._queue.join(item)
        elif item and item.ended is None and item in self._queue.running():
            if not item.withdrawn:
                item.withdraw(now + STOP_TIMEOUT)
                step.commands.append(StopWorker(item.id))
        elif item and item.ended is None:
            self._queue.remove(item)
            step.events.append(self._queue.end(item, Outcome(Ending.INTERRUPTED)))

    def _handle_request(self, event: ControlEvent, step: StepResult, now: float) -> None:
        workers = self._queue.workers
        if self._shutdown or not isinstance(event, events.WorkerCountRequested):
            self._control.handle(event, step, now)
            if self._auto:
                self._auto.restart(now)
        elif event.workers != AUTO_PARALLEL:
            if self._auto and event.workers == workers:
                step.events.append(events.WorkerCountChanged(workers, workers))
            else:
                self._control.handle(event, step, now)
            self._auto = self._auto if event.workers < 1 else None
        elif self._auto:
            step.events.append(events.RequestDeclined("the run already decides the number of workers itself"))
        else:
            self._auto = AutoWorkers(self._limits.max_parallel)
            self._auto.machine = self._machine
            self._auto.begin(self._queue.queued, self._slots(now), now)
            step.events.append(events.WorkerCountChanged(workers, workers, auto=True))

    def _handle_worker_event(self, event: events.Event, step: StepResult, now: float) -> None:
        match event:
            case events.ItemJoined() | events.ItemWithdrawn():
                self._handle_membership(event, step, now)
            case events.WorkerExited():
                self._handle_worker_exit(event, step, now)
            case events.AnswerRecovered():
                self._queue.items[event.item].usage += event.usage
                step.events.append(self._lease_manager.recover(event))
            case events.WorkerStartFailed():
                self._retry_policy.worker_start_failed(event, step, now)
            case (
                events.WorkerStarted()
                | events.LineWritten()
                | events.NodeStarted()
                | events.NodeFinished()
                | events.CallProgress()
                | events.WorkerReported()
                | events.KeyWaitStarted()
                | events.KeyWaitEnded()
            ):
                self._queue.items[event.item].handle(event, now)
            case _:
                pass

    def _handle_lease_event(
        self,
        event: events.LeaseRequested | events.LeaseReleased,
        step: StepResult,
        now: float,
    ) -> None:
        item = self._queue.items[event.item]
        item.record_activity(now)
        if isinstance(event, events.LeaseRequested):
            if not self._shutdown:
                self._lease_manager.request(event, now)
            item.start_wait(now)
        else:
            if event.refusal and event.refusal.kind in (RefusalKind.NOT_YET, RefusalKind.OVER_BUDGET):
                item.count_as_wait(event.seconds, now)
            else:
                self._watchdog.record_call(event.seconds)
            item.end_call(now)
            item.usage += event.usage
            step.events.extend(self._lease_manager.release(event, now))
            if not event.lease and self._budget.is_exceeded:
                # The gateway enforces the budget on its own calls, but does not see what else the run spends.
                self._gateway_stop = StopReason(75, "budget", self._budget.why_refused())

    def _handle_continued(self, event: events.RunContinued, step: StepResult, now: float) -> None:
        """Suspended time counts towards no deadline: shift every clock by it."""
        if self._auto:
            self._auto.restart(now)
        self._heartbeat_at += event.seconds
        self._shutdown.postpone(event.seconds)
        for item in self._queue.running():
            item.shift_clocks(event.seconds)
            step.commands.append(ThawWorker(item.id))

    def _handle_worker_exit(self, event: events.WorkerExited, step: StepResult, now: float) -> None:
        self._lease_manager.drop_holder(event.item)
        step.events.extend(self._disk_wait.drop_item(event.item, now))
        self._retry_policy.worker_exited(event, step, now)

    # Phase 1, continued: grant leases. Phase 2: everything else.

    def _decide(self, step: StepResult, now: float) -> StepResult:
        self._grant_leases(step, now)
        return self._schedule(step, now)

    def _grant_leases(self, step: StepResult, now: float) -> None:
        step.events.extend(self._lease_manager.breaker_events(now))
        if self._control.paused:
            return
        for lease in self._lease_manager.grants(now):
            timeout = lease.credential.call_timeout or self._limits.call_timeout
            waited = self._queue.items[lease.request.holder].end_wait(now, timeout)
            step.commands.append(lease.grant_command(self._lease_manager.answers_from(lease)))
            step.events.append(
                events.LeaseGranted(lease.request.holder, lease.credential.name, lease.id, waited)
            )

    def _schedule(self, step: StepResult, now: float) -> StepResult:
        alerts = self._pool_monitor.update(now)
        step.events.extend([] if self._shutdown else alerts)
        if self._shutdown:
            step.events.extend(self._queue.end_queued(Outcome(Ending.INTERRUPTED)))
        if reason := self._stop_reason(now):
            started = events.ShutdownStarted(reason.reason, reason.detail, reason.seconds)
            self._shutdown.begin(started, reason.exit_code, step, now)
        self._enforce_deadlines(step, now)
        self._start_items(step, now)
        self._adjust_workers(step, now)
        self._fail_stranded(step)
        self._emit_heartbeat(step, now)
        self._finish(step, now)
        return step

    def _stop_reason(self, now: float) -> StopReason | None:
        if self._shutdown or self._control.paused or not self._queue.is_unfinished():
            return None
        if self._gateway_stop:
            return self._gateway_stop
        if self._budget.refused and not self._lease_manager.pool.held():
            return StopReason(75, "budget", self._budget.why_refused())
        return self._pool_monitor.stop_reason(now) if self._has_keys else None

    def _enforce_deadlines(self, step: StepResult, now: float) -> None:
        for item in self._queue.running():
            self._watchdog.enforce_deadlines(item, step, now)
        self._shutdown.enforce_deadline(step, now)

    def _adjust_workers(self, step: StepResult, now: float) -> None:
        """Adjust the number of workers. Call it after starting items: only then is it known whether more could run."""
        auto, queue = self._auto, self._queue
        if not auto or now < auto.next_at or not self._may_adjust_workers():
            return
        demand = WorkerDemand(queue.workers, len(queue.running()), queue.queued, self._slots(now))
        if decision := auto.decide(queue.worker_time(now), demand, now):
            changed = events.WorkerCountChanged(
                decision.workers, queue.workers, auto=True, reason=decision.reason
            )
            step.events.append(changed)
            queue.change_workers(decision.workers)
            self._start_items(step, now)

    def _may_adjust_workers(self) -> bool:
        return self._queue.has_queued and not self._shutdown and not self._control.paused

    def _slots(self, now: float) -> int | None:
        """How many calls the keys allow at once; None in a run without keys of its own."""
        return max(1, self._lease_manager.pool.keys.usable_slots(now)) if self._has_keys else None

    def _start_items(self, step: StepResult, now: float) -> None:
        while self._may_start(now) and (started := self._queue.start_next(now)):
            step.events.append(started)
            step.commands.append(StartWorker(started.item, started.slot, started.attempt))

    def _may_start(self, now: float) -> bool:
        if (
            not self._queue.has_queued
            or self._shutdown
            or self._budget.refused
            or self._control.paused
            or self._disk_wait.is_waiting
        ):
            return False
        # If nothing runs, one item must start: only a call can show whether the keys work again.
        return not (self._has_keys and self._queue.running() and self._pool_monitor.hold_starts(now))

    def _fail_stranded(self, step: StepResult) -> None:
        """Fail the queued items if every slot is retired."""
        if self._queue.is_stranded():
            step.events.extend(self._queue.end_queued(failed_transient("no worker slot is left")))

    def _emit_heartbeat(self, step: StepResult, now: float) -> None:
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_INTERVAL
            step.events.append(events.Heartbeat(now - self._started_at))

    def _finish(self, step: StepResult, now: float) -> None:
        if self._is_endless:
            self._queue.forget_ended()
            if not self._shutdown:
                return
        if not self.over and not self._queue.is_unfinished():
            self.over = True
            step.events.append(
                events.RunEnded(
                    self.exit_code(), now - self._started_at, self._queue.waited(), self._shutdown.detail
                )
            )
