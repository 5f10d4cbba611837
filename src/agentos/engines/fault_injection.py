"""Fault injection: an engine wrapper that simulates one 429 of a provider (AGENTOS_SIMULATE_429)."""

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, GrantLease
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import DEFAULT_WAIT, Refusal, RefusalKind


class Inject429Engine:
    """Withholds one grant, after `after` others, and reports a 429 without Retry-After on the worker's behalf."""

    def __init__(self, engine: Engine, after: int) -> None:
        self._engine = engine
        self._grants_left = after
        self._events: list[EngineEvent | WorkerEvent] = []
        self._requests: dict[tuple[str, str], events.LeaseRequested] = {}

    def execute(self, command: Command) -> None:
        if not isinstance(command, GrantLease):
            return self._engine.execute(command)
        self._grants_left -= 1
        if self._grants_left != -1:
            return self._engine.execute(command)
        reason = "429 simulated (AGENTOS_SIMULATE_429)"
        refusal = Refusal(RefusalKind.RATE_LIMITED, reason, DEFAULT_WAIT)
        self._events.append(events.LeaseReleased(command.item, command.lease, 0.0, Usage(), refusal))
        self._events.append(self._requests[command.item, command.call])
        self._engine.wake()

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        received, self._events = self._events, []
        received += self._engine.receive(0.0 if received else timeout)
        for event in received:
            if isinstance(event, events.LeaseRequested):
                self._requests[event.item, event.call] = event
        return received

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    def close(self) -> None:
        self._engine.close()
