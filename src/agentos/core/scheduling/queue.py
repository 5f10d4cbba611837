"""The work queue of a run: its items, the order in which they start, and the worker slots they run in."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from agentos.core.backoff import Jitter, backoff
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.scheduling.auto_workers import WorkerTime
from agentos.core.scheduling.item_state import ItemState

CRASHES_BEFORE_COOLDOWN = 3
COOLDOWNS_BEFORE_RETIREMENT = 5


@dataclass(slots=True)
class Slot:
    """Runs one item at a time. Three crashes in a row start a cooldown; a sixth cooldown retires the slot."""

    number: int
    item: str | None = None
    crashes: int = 0
    cooldowns: int = 0
    cooldown_until: float = 0.0
    retired: bool = False

    def record_success(self) -> None:
        self.crashes = 0

    def record_crash(self, now: float, jitter: Jitter) -> float | None:
        """Seconds of the cooldown that this crash starts, or None. Check `retired` afterwards."""
        self.crashes += 1
        if self.crashes < CRASHES_BEFORE_COOLDOWN:
            return None
        self.crashes = 0
        self.cooldowns += 1
        self.retired = self.cooldowns > COOLDOWNS_BEFORE_RETIREMENT
        seconds = backoff(self.cooldowns, jitter)
        self.cooldown_until = now + seconds
        return seconds

    def free(self, now: float) -> bool:
        return self.item is None and not self.retired and now >= self.cooldown_until


class WorkQueue:
    """All items of a run: each is queued, running in a slot, or ended. A slot runs one item at a time."""

    def __init__(self, items: tuple[str, ...], workers: int, jitter: Jitter) -> None:
        self.items = {item: ItemState(item) for item in items}
        self.workers = workers
        self._jitter = jitter
        self._queue = deque(self.items.values())
        # The queued items that have run before. Only these can have a start time; the others may be thousands.
        self._requeued: list[ItemState] = []
        self._slots = [Slot(number) for number in range(1, workers + 1)]
        self._parked_items: dict[str, None] = {}
        self._time_of_forgotten = WorkerTime()

    # Queue.

    @property
    def has_queued(self) -> bool:
        return bool(self._queue)

    def join(self, item: ItemState) -> None:
        """Add a new item, last in the queue."""
        self.items[item.id] = item
        self._queue.append(item)

    def forget_ended(self) -> None:
        forgotten = [item.worker_time(0.0) for item in self.items.values() if item.ended is not None]
        self._time_of_forgotten = sum(forgotten, self._time_of_forgotten)
        self.items = {name: item for name, item in self.items.items() if item.ended is None}
        self._parked_items.clear()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def queue_first(self, item: ItemState) -> None:
        self._queue.appendleft(item)
        self._requeued.append(item)

    def queue_last(self, item: ItemState) -> None:
        self._queue.append(item)
        self._requeued.append(item)

    def remove(self, item: ItemState) -> None:
        """Take the item out of the queue."""
        self._queue.remove(item)
        self._requeued = [other for other in self._requeued if other is not item]

    def next_items(self, now: float) -> list[ItemState]:
        """The queued items that would start now, one per free slot."""
        free = min(sum(slot.free(now) for slot in self._slots), self.workers - len(self.running()))
        return list(islice((item for item in self._queue if item.not_before <= now), max(0, free)))

    def queued_items(self) -> list[str]:
        return [item.id for item in self._queue]

    def end_queued(self, outcome: Outcome) -> list[events.ItemEnded]:
        """End every queued item with this outcome."""
        cleared = list(self._queue)
        self._queue.clear()
        self._requeued.clear()
        return [self.end(item, outcome) for item in cleared]

    def due_at(self, now: float) -> float | None:
        """When the next queued item may start or the next slot has cooled down; None if nothing is queued."""
        moments = [slot.cooldown_until for slot in self._slots] + [item.not_before for item in self._requeued]
        return min((at for at in moments if at > now), default=None) if self._queue else None

    def waited(self) -> float:
        """Seconds that all items together have waited for keys."""
        return sum(item.waited for item in self.items.values())

    def worker_time(self, now: float) -> WorkerTime:
        """What all workers together have spent so far."""
        times = (item.worker_time(now) for item in self.items.values() if item.attempts)
        return sum(times, self._time_of_forgotten)

    # Slots.

    def running(self) -> list[ItemState]:
        return [self.items[slot.item] for slot in self._slots if slot.item]

    def is_unfinished(self) -> bool:
        return bool(self._queue or self.running())

    def start_next(self, now: float) -> events.ItemStarted | None:
        """Start the first queued item that is due in the first free slot; None without such an item or slot."""
        slot = self._free_slot(now)
        item = next((item for item in self._queue if item.not_before <= now), None) if slot else None
        if slot is None or item is None:
            return None
        self.remove(item)
        slot.item = item.id
        item.start(now)
        return events.ItemStarted(item.id, slot.number, item.attempts)

    def release_slot(self, item: ItemState, crash: str, now: float) -> list[events.SchedulerEvent]:
        """Free the item's slot. A `crash` counts against the slot unless we ended the worker ourselves."""
        slot = next(slot for slot in self._slots if slot.item == item.id)
        slot.item = None
        if not crash or item.timed_out or item.suspended:
            slot.record_success()
            return []
        seconds = slot.record_crash(now, self._jitter)
        if slot.retired:
            return [events.SlotRetired(slot.number, len(self._active_slots()))]
        return [] if seconds is None else [events.SlotCooldownStarted(slot.number, seconds, crash)]

    def change_workers(self, workers: int) -> None:
        """Change the number of workers. Running items continue; retired slots are replaced by new ones."""
        self.workers = workers
        while len(self._active_slots()) < workers:
            self._slots.append(Slot(len(self._slots) + 1))

    def is_stranded(self) -> bool:
        """Whether every slot is retired."""
        return not self._active_slots()

    def _free_slot(self, now: float) -> Slot | None:
        if len(self.running()) >= self.workers:
            return None
        return next((slot for slot in self._slots if slot.free(now)), None)

    def _active_slots(self) -> list[Slot]:
        return [slot for slot in self._slots if not slot.retired]

    # Ended items.

    def end(self, item: ItemState, outcome: Outcome) -> events.ItemEnded:
        item.ended = outcome
        if outcome.ending is Ending.PARKED:
            self._parked_items[item.id] = None
        return events.ItemEnded(
            item.id, outcome, item.spent + item.waited, item.usage, item.attempts, item.node
        )

    def resume_parked(self, item: str) -> None:
        """Queue a parked item that a person has decided on, with its full number of tries."""
        if item in self._parked_items:
            del self._parked_items[item]
            state = self.items[item]
            state.ended, state.attempt_offset = None, state.attempts
            self.queue_last(state)

    def parked(self) -> list[str]:
        """Items that wait for a person's decision."""
        return list(self._parked_items)

    def endings(self) -> set[Ending]:
        return {item.ended.ending for item in self.items.values() if item.ended}
