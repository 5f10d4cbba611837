"""An engine around an engine that also tells what a gateway has to say."""

import queue
import threading
from collections.abc import Iterable
from typing import cast

from agentos.core import events
from agentos.core.commands import Command
from agentos.core.events import EngineEvent, WorkerEvent
from agentos.core.ports import Engine


class CountingEngine:
    """Calls that the gateway counts for an item are told as if the item's worker had made them."""

    def __init__(self, engine: Engine, counted: Iterable[events.Event], items: Iterable[str]) -> None:
        self._engine = engine
        self._items = set(items)
        self._told: queue.SimpleQueue[events.Event] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(counted,), name="gateway", daemon=True).start()

    def obey(self, command: Command) -> None:
        self._engine.obey(command)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        told = self._engine.receive(timeout)
        while not self._told.empty():
            event = self._told.get_nowait()
            if isinstance(event, events.CallCounted):
                told.append(events.LeaseReturned(event.item, "", 0.0, event.usage, model=event.model))
            # News of another pool than the run's: it is heard by those who listen, and changes nothing.
            told.append(cast(EngineEvent, event))
        return told

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
                self._told.put(event)
                self._engine.wake()
