"""The imagined Temporal: durable workflows, activities with heartbeats, timeouts and attempts, signals and cancellation."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from temporalio.activity import ActivityCancellationDetails
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from agentos.fleet.item_workflow import ATTEMPT_INTERVAL, ATTEMPTS, HEARTBEAT_TIMEOUT, ItemStart
from agentos.fleet.turns import ItemTurns, NextStep, Turn, TurnResult

from .network import Machine, Service, Unreachable
from .virtual_time import VirtualProcess

POLL_INTERVAL = 5.0  # seconds
HEARTBEAT_SECONDS = HEARTBEAT_TIMEOUT.total_seconds()


class Poller(Protocol):
    """A worker's side of a task queue: it has asked for one activity."""

    machine: Machine

    @property
    def is_polling(self) -> bool: ...

    @property
    def is_gone(self) -> bool: ...

    def start(self, attempt: "Attempt") -> None: ...


@dataclass(eq=False, slots=True)
class WorkflowRun:
    """One item's workflow. `turns` is the product's own; it is all that the workflow decides with."""

    start: ItemStart
    turns: ItemTurns
    status: WorkflowExecutionStatus = WorkflowExecutionStatus.RUNNING
    current: "Attempt | None" = None
    is_cancelled: bool = False
    decisions: int = 0
    seen: int = 0
    is_waiting: bool = False
    timed_out: int = 0
    failed: int = 0


@dataclass(eq=False, slots=True)
class Attempt:
    run: WorkflowRun
    turn: Turn
    number: int
    worker: Poller
    heartbeat_at: float


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt that counts against the limit, and whether a machine or Temporal itself was in trouble."""

    item: str
    number: int
    reason: str
    is_excused: bool


@dataclass(slots=True)
class _Task:
    run: WorkflowRun
    turn: Turn
    number: int


class Temporal(Service):
    """State and timers outlive an outage; whatever was due meanwhile happens when it is back."""

    def __init__(self, new_turns: Callable[[], ItemTurns] = ItemTurns) -> None:
        super().__init__("temporal")
        self.process = VirtualProcess("temporal")
        self.runs: dict[str, WorkflowRun] = {}
        self.lost: list[LostAttempt] = []
        self.attempts = 0
        self.open = 0
        self.over: asyncio.Future[None] | None = None
        self._new_turns = new_turns
        self._tasks: deque[_Task] = deque()
        self._pollers: deque[Poller] = deque()
        self.away_until = -1e9

    def stop(self) -> None:
        self.is_up = False
        self.away_until = float("inf")
        self.process.freeze()

    def restart(self) -> None:
        self.is_up = True
        self.away_until = _now()
        self.process.thaw()

    # From clients.

    def submit(self, start: ItemStart) -> None:
        thread = f"{start.project}/{start.item}"
        if thread not in self.runs or self.runs[thread].status is not WorkflowExecutionStatus.RUNNING:
            run = self.runs[thread] = WorkflowRun(start, self._new_turns())
            self.open += 1
            self._begin_turn(run)

    def signal(self, thread: str) -> None:
        run = self.runs[thread]
        run.decisions += 1
        if run.is_waiting and run.decisions > run.seen:
            run.is_waiting = False
            self._begin_turn(run)

    def describe(self, thread: str) -> WorkflowExecutionStatus:
        if not self.is_up:
            raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
        return self.runs[thread].status

    def cancel(self, thread: str) -> None:
        run = self.runs[thread]
        run.is_cancelled = True
        if run.current is None:
            self._close(run, WorkflowExecutionStatus.CANCELED)

    # From workers.

    def poll(self, worker: Poller) -> None:
        """The worker has room for one more activity."""
        self._pollers.append(worker)
        self._dispatch()

    def heartbeat(self, attempt: Attempt) -> ActivityCancellationDetails | None:
        """None if there is nothing to tell, or nothing comes through."""
        if not self.is_up or attempt.worker.machine.is_cut_from(self.name):
            return None
        if attempt.run.current is not attempt:
            return ActivityCancellationDetails(not_found=True)
        attempt.heartbeat_at = _now()
        return ActivityCancellationDetails(cancel_requested=True) if attempt.run.is_cancelled else None

    async def report(self, attempt: Attempt, result: TurnResult | None, error: str) -> None:
        """Repeated until it comes through, as the SDK does. Without a result the attempt has failed."""
        while True:
            try:
                await attempt.worker.machine.send(self)
                break
            except Unreachable:
                await asyncio.sleep(1.0)
        run = attempt.run
        if run.current is not attempt:
            return
        run.current = None
        if run.is_cancelled and result is None:
            self._close(run, WorkflowExecutionStatus.CANCELED)
        elif result is None:
            run.failed += 1
            self._retry(attempt, error, is_excused=False)
        else:
            self._after_turn(run, result)

    # The engine.

    def _begin_turn(self, run: WorkflowRun) -> None:
        run.turns.begin()
        run.seen = run.decisions
        start = run.start
        turn = Turn(
            start.project, start.item, start.submission, run.turns.turn, run.turns.tries, start.retries
        )
        self._queue(run, turn, 1)

    def _after_turn(self, run: WorkflowRun, result: TurnResult) -> None:
        match run.turns.after(result):
            case NextStep.RUN:
                self._begin_turn(run)
            case NextStep.SLEEP:
                self.process.call_later(result.seconds, self._begin_turn, run)
            case NextStep.AWAIT_DECISION if run.decisions > run.seen:
                self._begin_turn(run)
            case NextStep.AWAIT_DECISION:
                run.is_waiting = True
            case NextStep.END:
                self._close(run, WorkflowExecutionStatus.COMPLETED)

    def _queue(self, run: WorkflowRun, turn: Turn, number: int) -> None:
        if run.is_cancelled:
            self._close(run, WorkflowExecutionStatus.CANCELED)
        else:
            self._tasks.append(_Task(run, turn, number))
            self._dispatch()

    def _dispatch(self) -> None:
        if not self.is_up:
            self.process.call_later(0.0, self._dispatch)  # when it is back
            return
        while self._tasks and self._pollers:
            worker = self._pollers.popleft()
            if worker.is_polling:
                self._start(self._tasks.popleft(), worker)
            elif not worker.is_gone:  # it asks again when it is back
                self.process.call_later(POLL_INTERVAL, self.poll, worker)

    def _start(self, task: _Task, worker: Poller) -> None:
        self.attempts += 1
        attempt = Attempt(task.run, task.turn, task.number, worker, _now())
        task.run.current = attempt
        self.process.call_later(HEARTBEAT_SECONDS, self._check_heartbeat, attempt)
        worker.start(attempt)

    def _check_heartbeat(self, attempt: Attempt) -> None:
        if attempt.run.current is not attempt:
            return
        due = attempt.heartbeat_at + HEARTBEAT_SECONDS
        if _now() < due - 1e-6:
            self.process.call_later(due - _now(), self._check_heartbeat, attempt)
            return
        attempt.run.current = None
        attempt.run.timed_out += 1
        machine, since = attempt.worker.machine, _now() - HEARTBEAT_SECONDS - 2.0
        is_excused = machine.in_trouble_since(since, self.name) or self.away_until >= since
        self._retry(attempt, "heartbeat timeout", is_excused)

    def _retry(self, attempt: Attempt, reason: str, is_excused: bool) -> None:
        run = attempt.run
        self.lost.append(LostAttempt(run.start.item, attempt.number, reason, is_excused))
        if attempt.number >= ATTEMPTS:
            self._close(run, WorkflowExecutionStatus.FAILED)
        else:
            seconds = ATTEMPT_INTERVAL.total_seconds()
            self.process.call_later(seconds, self._queue, run, attempt.turn, attempt.number + 1)

    def _close(self, run: WorkflowRun, status: WorkflowExecutionStatus) -> None:
        if run.status is WorkflowExecutionStatus.RUNNING:
            run.status = status
            self.open -= 1
            if not self.open and self.over and not self.over.done():
                self.over.set_result(None)


@dataclass(frozen=True, slots=True)
class TemporalClient:
    """As much of a client as a follower uses."""

    temporal: Temporal
    workflow: str = field(default="")

    def get_workflow_handle(self, workflow: str) -> "TemporalClient":
        return TemporalClient(self.temporal, workflow)

    async def describe(self) -> "TemporalClient":
        self.temporal.describe(self.workflow)
        return self

    @property
    def status(self) -> WorkflowExecutionStatus:
        return self.temporal.describe(self.workflow)


def _now() -> float:
    return asyncio.get_running_loop().time()
