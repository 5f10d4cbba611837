"""Where each item of a run is: in the queue, at work in a slot, or at its end."""

from collections import deque

from agentos.core.backoff import Jitter
from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.scheduling.item_state import ItemState
from agentos.core.scheduling.slots import Slot


class WorkQueue:
    """An item is in one of these places, a slot has one item at a time."""

    def __init__(self, items: tuple[str, ...], workers: int, jitter: Jitter) -> None:
        self.items = {item: ItemState(item) for item in items}
        self.workers = workers
        self._jitter = jitter
        self._queue = deque(self.items.values())
        # Those of the queue that have been at work before; the others may be thousands.
        self._returned: list[ItemState] = []
        self._slots = [Slot(number) for number in range(1, workers + 1)]
        self._parked_items: dict[str, None] = {}

    # The queue.

    @property
    def is_queueing(self) -> bool:
        return bool(self._queue)

    def queue_first(self, work: ItemState) -> None:
        self._queue.appendleft(work)
        self._returned.append(work)

    def queue_last(self, work: ItemState) -> None:
        self._queue.append(work)
        self._returned.append(work)

    def clear_queue(self) -> list[ItemState]:
        """Those who were in it."""
        cleared = list(self._queue)
        self._queue.clear()
        self._returned.clear()
        return cleared

    def due_at(self, now: float) -> float | None:
        """When somebody of the queue, or a slot for them, has waited long enough."""
        moments = [slot.cooldown_until for slot in self._slots] + [work.not_before for work in self._returned]
        return min((at for at in moments if at > now), default=None) if self._queue else None

    def waited(self) -> float:
        """Seconds that items have waited for keys, added up."""
        return sum(work.waited for work in self.items.values())

    # The slots.

    def running(self) -> list[ItemState]:
        return [self.items[slot.item] for slot in self._slots if slot.item]

    def is_unfinished(self) -> bool:
        return bool(self._queue or self.running())

    def start_next(self, now: float) -> events.ItemStarted | None:
        """The next item that is due, in the first free slot; None while there is no such item or slot."""
        slot = self._free_slot(now)
        work = next((work for work in self._queue if work.not_before <= now), None) if slot else None
        if slot is None or work is None:
            return None
        self._queue.remove(work)
        self._returned = [other for other in self._returned if other is not work]
        slot.item = work.item
        work.start(now)
        return events.ItemStarted(work.item, slot.number, work.attempts)

    def release_slot(self, work: ItemState, crash: str, now: float) -> list[events.News]:
        """Its slot is free; what was not the item's own fault is held against the slot."""
        slot = next(slot for slot in self._slots if slot.item == work.item)
        slot.item = None
        if not crash or work.timed_out or work.suspended:
            slot.record_success()
            return []
        seconds = slot.record_crash(now, self._jitter)
        if slot.retired:
            return [events.SlotRetired(slot.number, len(self._sound()))]
        return [] if seconds is None else [events.SlotCooldownStarted(slot.number, seconds, crash)]

    def change_workers(self, workers: int) -> None:
        """Those at work go on; what is retired stays so, and a sound slot is added in its stead."""
        self.workers = workers
        while len(self._sound()) < workers:
            self._slots.append(Slot(len(self._slots) + 1))

    def is_stranded(self) -> bool:
        """Whether no slot will ever be free again."""
        return not self._sound()

    def _free_slot(self, now: float) -> Slot | None:
        if len(self.running()) >= self.workers:
            return None
        return next((slot for slot in self._slots if slot.free(now)), None)

    def _sound(self) -> list[Slot]:
        return [slot for slot in self._slots if not slot.retired]

    # The end.

    def end(self, work: ItemState, outcome: Outcome) -> events.ItemEnded:
        work.ended = outcome
        if outcome.ending is Ending.PARKED:
            self._parked_items[work.item] = None
        return events.ItemEnded(
            work.item, outcome, work.spent + work.waited, work.usage, work.attempts, work.node
        )

    def resume_parked(self, item: str) -> None:
        """A parked item that a person has decided on goes on; its tries so far are not held against it."""
        if item in self._parked_items:
            del self._parked_items[item]
            work = self.items[item]
            work.ended, work.attempt_offset = None, work.attempts
            self.queue_last(work)

    def parked(self) -> list[str]:
        """Items that wait for a person."""
        return list(self._parked_items)

    def endings(self) -> set[Ending]:
        return {work.ended.ending for work in self.items.values() if work.ended}
