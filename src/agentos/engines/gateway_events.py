"""An engine around an engine that also tells what a gateway has to say."""

import queue
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, StartWorker
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending


class GatewayAwareEngine:
    """Calls that the gateway counts for an item are told as if the item's worker had made them.

    No program starts while there is no gateway; one that fails when its gateway has died may be tried again.
    """

    def __init__(self, engine: Engine, counted: Iterable[events.Event], items: Iterable[str]) -> None:
        self._engine = engine
        self._items = set(items)
        self._running: set[str] = set()
        self._excused_items: set[str] = set()
        self._is_down = False
        self._held: list[StartWorker] = []
        self._events: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(counted,), name="gateway", daemon=True).start()

    def execute(self, command: Command) -> None:
        if isinstance(command, StartWorker):
            self._running.add(command.item)
            self._held.append(command)
            if self._is_down:
                return
        self._release()
        if not isinstance(command, StartWorker):
            self._engine.execute(command)

    def _release(self) -> None:
        """Starts what was held back; whatever else is ordered is for workers that are there."""
        held, self._held = self._held, []
        for command in held:
            self._excused_items.discard(command.item)
            self._engine.execute(command)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        # A program fails after the gateway that it asked: what is told of the one is heard before the other.
        heard = self._engine.receive(timeout)
        told = self._news()
        if not self._is_down:
            self._release()
        return [*told, *(self._excused(event) for event in heard)]

    def _news(self) -> list[EngineEvent | WorkerEvent]:
        found: list[EngineEvent | WorkerEvent] = []
        while not self._events.empty():
            match event := self._events.get_nowait():
                case events.CallCompleted():
                    returned = events.LeaseReleased(event.item, "", 0.0, event.usage, model=event.model)
                    found.append(returned)
                case events.GatewayExited():
                    self._is_down = event.restarting
                    self._excused_items |= self._running
                case events.GatewayRestored():
                    self._is_down = False
                case _:
                    pass
            # News of another pool than the run's: it is heard by those who listen, and changes nothing.
            found.append(cast(EngineEvent, event))
        return found

    def _excused(self, event: EngineEvent | WorkerEvent) -> EngineEvent | WorkerEvent:
        match event:
            case events.WorkerReported(item=item, outcome=outcome) if item in self._excused_items:
                retryable = outcome.retryable or outcome.ending is Ending.FAILED
                return replace(event, outcome=replace(outcome, retryable=retryable))
            case events.WorkerExited() | events.WorkerStartFailed():
                self._running.discard(event.item)
        return event

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    def close(self) -> None:
        self._engine.close()

    def _read(self, counted: Iterable[events.Event]) -> None:
        """Until the gateway ends; in a thread of its own, since its next word may be long in coming."""
        for event in counted:
            if getattr(event, "item", None) is None or event.item in self._items:  # type: ignore[union-attr]
                self._events.put(event)
                self._engine.wake()
