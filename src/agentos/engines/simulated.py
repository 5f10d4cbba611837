"""An engine around an engine that has one call refused, as a provider would."""

from agentos.core import events
from agentos.core.commands import Command, GrantLease
from agentos.core.events import EngineEvent, WorkerEvent
from agentos.core.ports import Engine
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.results import Usage


class RefusingEngine:
    """Keeps back the grant after so many, and answers in the worker's place: 429, without a hint."""

    def __init__(self, engine: Engine, after: int) -> None:
        self._engine = engine
        self._left = after
        self._told: list[EngineEvent | WorkerEvent] = []
        self._wants: dict[tuple[str, str], events.LeaseWanted] = {}

    def obey(self, command: Command) -> None:
        if not isinstance(command, GrantLease):
            return self._engine.obey(command)
        self._left -= 1
        if self._left != -1:
            return self._engine.obey(command)
        refusal = Refusal(RefusalKind.RATE_LIMITED, "429 simulated (AGENTOS_SIMULATE_429)")
        self._told.append(events.LeaseReturned(command.item, command.lease, 0.0, Usage(), refusal))
        self._told.append(self._wants[command.item, command.call])
        self._engine.wake()

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        told, self._told = self._told, []
        told += self._engine.receive(0.0 if told else timeout)
        for event in told:
            if isinstance(event, events.LeaseWanted):
                self._wants[event.item, event.call] = event
        return told

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    def close(self) -> None:
        self._engine.close()
