"""An engine wrapper that adds a gateway's events to those of the workers."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, StartWorker
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending

SETTLE_DEADLINE = 3.0  # seconds; longer than the gateway needs to settle


@dataclass(frozen=True, slots=True)
class CallsSettled:
    """The gateway's answer to `settle`: every call of the item has ended, and its events were sent before this one."""

    item: str


@dataclass(frozen=True, slots=True)
class _HeldExit:
    event: events.WorkerExited
    deadline: float


class GatewayAwareEngine:
    """Reports the calls that a gateway makes for an item as if the item's worker had made them.

    While the gateway is down, no program is started. A program that fails after its gateway died is retried. The exit
    of a program is held back until CallsSettled answers `settle(item)`, so that its last call is counted for it.
    """

    def __init__(
        self,
        engine: Engine,
        gateway_events: Iterable[events.Event | CallsSettled],
        items: Iterable[str],
        settle: Callable[[str], bool] = lambda item: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._settle = settle
        self._clock = clock
        self._exits: dict[str, _HeldExit] = {}
        self._items = set(items)
        self._running: set[str] = set()
        self._excused_items: set[str] = set()
        self._is_down = False
        self._waits: Counter[str] = Counter()
        self._held: list[StartWorker] = []
        self._events: queue.SimpleQueue[events.Event | CallsSettled] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(gateway_events,), name="gateway", daemon=True).start()

    def execute(self, command: Command) -> None:
        if isinstance(command, StartWorker):
            self._running.add(command.item)
            self._held.append(command)
            if self._is_down:
                return
        self._start_held()
        if not isinstance(command, StartWorker):
            self._engine.execute(command)

    def _start_held(self) -> None:
        """Start the held workers."""
        held, self._held = self._held, []
        for command in held:
            self._excused_items.discard(command.item)
            self._engine.execute(command)

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        # Ask the engine first: if a program failed because the gateway died, the gateway's event is already queued.
        received = self._engine.receive(self._until_deadline(timeout))
        gateway_events = self._gateway_events()
        if not self._is_down:
            self._start_held()
        ended = self._overdue_exits()
        ended += [event for event in received if not self._hold_exit(event)]
        return [*gateway_events, *(self._excuse(event) for event in ended)]

    def _hold_exit(self, event: EngineEvent | WorkerEvent) -> bool:
        if not isinstance(event, events.WorkerExited) or self._is_down or not self._settle(event.item):
            return False
        self._exits[event.item] = _HeldExit(event, self._clock() + SETTLE_DEADLINE)
        return True

    def _overdue_exits(self) -> list[EngineEvent | WorkerEvent]:
        now = self._clock()
        overdue = [item for item, held in self._exits.items() if held.deadline <= now]
        return [self._exits.pop(item).event for item in overdue]

    def _until_deadline(self, timeout: float | None) -> float | None:
        if not self._exits:
            return timeout
        left = max(0.0, min(held.deadline for held in self._exits.values()) - self._clock())
        return left if timeout is None else min(timeout, left)

    def _gateway_events(self) -> list[EngineEvent | WorkerEvent]:
        found: list[EngineEvent | WorkerEvent] = []
        while not self._events.empty():
            match event := self._events.get_nowait():
                case events.CallCompleted():
                    returned = events.LeaseReleased(event.item, "", 0.0, event.usage, model=event.model)
                    found.append(returned)
                case events.KeyWaitStarted() | events.KeyWaitEnded():
                    found += self._count_wait(event)
                    continue
                case CallsSettled():
                    if held := self._exits.pop(event.item, None):
                        found.append(self._excuse(held.event))
                    continue
                case events.GatewayExited():
                    self._is_down = event.restarting
                    self._excused_items |= self._running
                    found += [events.KeyWaitEnded(item) for item in self._waiting & self._running]
                    self._waits.clear()
                    found += [self._excuse(held.event) for held in self._exits.values()]
                    self._exits.clear()
                case events.GatewayRestored():
                    self._is_down = False
                case _:
                    pass
            # The gateway has its own pool: listeners see these events, the scheduler ignores them.
            found.append(cast(EngineEvent, event))
        return found

    def _count_wait(
        self, event: events.KeyWaitStarted | events.KeyWaitEnded
    ) -> list[events.KeyWaitStarted | events.KeyWaitEnded]:
        """A program with several calls waits as long as any of them has no key."""
        before = self._waits[event.item]
        self._waits[event.item] = max(0, before + (1 if isinstance(event, events.KeyWaitStarted) else -1))
        changed = bool(before) is not bool(self._waits[event.item])
        return [event] if changed and event.item in self._running else []

    @property
    def _waiting(self) -> set[str]:
        return {item for item, calls in self._waits.items() if calls}

    def _excuse(self, event: EngineEvent | WorkerEvent) -> EngineEvent | WorkerEvent:
        match event:
            case events.WorkerReported(item=item, outcome=outcome) if item in self._excused_items:
                retryable = outcome.retryable or outcome.ending is Ending.FAILED
                return replace(event, outcome=replace(outcome, retryable=retryable))
            case events.WorkerExited() | events.WorkerStartFailed():
                self._running.discard(event.item)
                self._waits.pop(event.item, None)
        return event

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    def close(self) -> None:
        self._engine.close()

    def _read(self, gateway_events: Iterable[events.Event | CallsSettled]) -> None:
        """Queue events until the gateway ends. Runs in a thread of its own, because reading blocks."""
        for event in gateway_events:
            if getattr(event, "item", None) is None or event.item in self._items:  # type: ignore[union-attr]
                self._events.put(event)
                self._engine.wake()
