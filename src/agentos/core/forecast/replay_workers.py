"""Imagined workers that do what those of earlier runs did."""

from dataclasses import replace

from agentos.core.forecast.discrete_events import ScheduledEvent
from agentos.core.forecast.history import ItemTrace
from agentos.core.protocol import events
from agentos.core.protocol.commands import (
    Command,
    FreezeWorker,
    GrantLease,
    KillWorker,
    StartWorker,
    StopWorker,
    ThawWorker,
)
from agentos.core.protocol.results import Ending, Outcome, Verdict, failed

APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


class ReplayWorkers:
    """Workers that do what earlier ones did, and models that answer as they did.

    None is there before the run has warmed up.
    """

    def __init__(self, traces: dict[str, ItemTrace], warm_up: float) -> None:
        self._traces = traces
        self._warm_up = warm_up
        self._ready: float | None = None
        self._calls: dict[str, int] = {}

    def execute(self, command: Command, now: float) -> list[ScheduledEvent]:
        match command:
            case StartWorker():
                return self._start(command.item, now)
            case GrantLease():
                return self._call(command, now)
            case StopWorker():
                return self._end(command.item, now, Outcome(Ending.INTERRUPTED))
            case KillWorker():
                return [ScheduledEvent(now, events.WorkerExited(command.item, "killed", clean=False))]
            case FreezeWorker() | ThawWorker():
                return []

    def _start(self, item: str, now: float) -> list[ScheduledEvent]:
        life = self._traces[item]
        self._ready = now + self._warm_up if self._ready is None else self._ready
        there = max(now, self._ready) + life.start
        self._calls[item] = 0
        return [ScheduledEvent(there, events.WorkerStarted(item, 1)), *self._go_on(item, there)]

    def _call(self, grant: GrantLease, now: float) -> list[ScheduledEvent]:
        number = self._calls[grant.item]
        call = self._traces[grant.item].calls[number]
        self._calls[grant.item] = number + 1
        back = now + call.duration
        model = grant.model or ""
        returned = events.LeaseReleased(grant.item, grant.lease, call.duration, call.usage, model=model)
        return [ScheduledEvent(back, returned), *self._go_on(grant.item, back)]

    def _go_on(self, item: str, now: float) -> list[ScheduledEvent]:
        life, number = self._traces[item], self._calls[item]
        if number == len(life.calls):
            problem = not life.nodes
            return self._end(item, now + life.after, failed("Invalid spec format") if problem else APPROVED)
        call = life.calls[number]
        return [
            ScheduledEvent(now + call.work_before, replace(call.request, item=item, call=f"call-{number}"))
        ]

    def _end(self, item: str, at: float, outcome: Outcome) -> list[ScheduledEvent]:
        return [
            ScheduledEvent(at, events.WorkerReported(item, outcome)),
            ScheduledEvent(at, events.WorkerExited(item, "exit status 0", clean=True)),
        ]
