"""Simulated workers that replay the item traces of earlier runs."""

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
    """Workers that replay one trace per item: the same calls, durations and token counts.

    The first worker starts after `warm_up` seconds, as the first worker of a real run does.
    """

    def __init__(self, traces: dict[str, ItemTrace], warm_up: float) -> None:
        self._traces = traces
        self._warm_up = warm_up
        self._warm_at: float | None = None
        self._calls_done: dict[str, int] = {}

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
        self._warm_at = now + self._warm_up if self._warm_at is None else self._warm_at
        started_at = max(now, self._warm_at) + self._traces[item].start
        self._calls_done[item] = 0
        return [ScheduledEvent(started_at, events.WorkerStarted(item, 1)), *self._continue(item, started_at)]

    def _call(self, grant: GrantLease, now: float) -> list[ScheduledEvent]:
        number = self._calls_done[grant.item]
        call = self._traces[grant.item].calls[number]
        self._calls_done[grant.item] = number + 1
        end = now + call.duration
        model = grant.model or ""
        released = events.LeaseReleased(grant.item, grant.lease, call.duration, call.usage, model=model)
        return [ScheduledEvent(end, released), *self._continue(grant.item, end)]

    def _continue(self, item: str, now: float) -> list[ScheduledEvent]:
        """Schedule the item's next call, or its end after the last one."""
        trace, number = self._traces[item], self._calls_done[item]
        if number == len(trace.calls):
            outcome = APPROVED if trace.nodes else failed("Invalid spec format")
            return self._end(item, now + trace.after, outcome)
        call = trace.calls[number]
        request = replace(call.request, item=item, call=f"call-{number}")
        return [ScheduledEvent(now + call.work_before, request)]

    def _end(self, item: str, at: float, outcome: Outcome) -> list[ScheduledEvent]:
        return [
            ScheduledEvent(at, events.WorkerReported(item, outcome)),
            ScheduledEvent(at, events.WorkerExited(item, "exit status 0", clean=True)),
        ]
