"""Imagined workers that do what those of earlier runs did."""

from dataclasses import replace

from agentos.core import events
from agentos.core.commands import (
    Command,
    FreezeWorker,
    GrantLease,
    KillWorker,
    StartWorker,
    StopWorker,
    ThawWorker,
)
from agentos.core.experience import Life
from agentos.core.results import Ending, Outcome, Verdict, failed
from agentos.core.world import Happening

APPROVED = Outcome(Ending.FINISHED, Verdict.APPROVED, 1)


class Understudies:
    """Workers that do what earlier ones did, and models that answer as they did.

    None is there before the run has warmed up.
    """

    def __init__(self, lives: dict[str, Life], warm_up: float) -> None:
        self._lives = lives
        self._warm_up = warm_up
        self._ready: float | None = None
        self._calls: dict[str, int] = {}

    def obey(self, command: Command, now: float) -> list[Happening]:
        match command:
            case StartWorker():
                return self._start(command.item, now)
            case GrantLease():
                return self._call(command, now)
            case StopWorker():
                return self._end(command.item, now, Outcome(Ending.INTERRUPTED))
            case KillWorker():
                return [Happening(now, events.WorkerEnded(command.item, "killed", clean=False))]
            case FreezeWorker() | ThawWorker():
                return []

    def _start(self, item: str, now: float) -> list[Happening]:
        life = self._lives[item]
        self._ready = now + self._warm_up if self._ready is None else self._ready
        there = max(now, self._ready) + life.start
        self._calls[item] = 0
        return [Happening(there, events.WorkerStarted(item, 1)), *self._go_on(item, there)]

    def _call(self, grant: GrantLease, now: float) -> list[Happening]:
        number = self._calls[grant.item]
        call = self._lives[grant.item].calls[number]
        self._calls[grant.item] = number + 1
        back = now + call.seconds
        model = grant.model or ""
        returned = events.LeaseReturned(grant.item, grant.lease, call.seconds, call.usage, model=model)
        return [Happening(back, returned), *self._go_on(grant.item, back)]

    def _go_on(self, item: str, now: float) -> list[Happening]:
        life, number = self._lives[item], self._calls[item]
        if number == len(life.calls):
            problem = not life.nodes
            return self._end(item, now + life.after, failed("Invalid spec format") if problem else APPROVED)
        call = life.calls[number]
        return [Happening(now + call.before, replace(call.wish, item=item, call=f"call-{number}"))]

    def _end(self, item: str, at: float, outcome: Outcome) -> list[Happening]:
        return [
            Happening(at, events.WorkerReported(item, outcome)),
            Happening(at, events.WorkerEnded(item, "exit status 0", clean=True)),
        ]
