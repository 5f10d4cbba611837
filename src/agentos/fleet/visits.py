"""The items that are on this machine, and what their coordinator and Temporal's thread tell each other about them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentos.core.planning.worker_task import CodeAccess, GitHubAccess, RoleModel
from agentos.core.protocol import events
from agentos.fleet.turns import Turn
from agentos.storage.postgres.event_writer import EventWriter, ItemClaim
from agentos.storage.postgres.fleet_items import LoadedTask

_UNFORWARDED = (events.ItemEnded, events.ItemJoined, events.ItemWithdrawn)


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """What the item's process gets from this machine."""

    origin: str
    models: tuple[RoleModel, ...]
    github: GitHubAccess | None
    code: CodeAccess | None


@dataclass(slots=True)
class Visit:
    """One item while it is here: from the activity's start to the exit of its process. `scratch` is deleted then."""

    key: str
    turn: Turn
    claim: ItemClaim
    loaded: LoadedTask
    prepared: PreparedItem
    scratch: Path
    ended: "Future[events.ItemEnded]" = field(default_factory=Future)


class Visits:
    """Shared by two threads: the coordinator's event loop takes the moves, Temporal's thread makes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects both fields from the two threads
        self._visits: dict[str, Visit] = {}
        self._moves: list[events.ItemJoined | events.ItemWithdrawn] = []
        self.wake: Callable[[], None] = lambda: None
        self.is_draining = False

    def enter(self, visit: Visit) -> bool:
        """False if the worker is draining, or the item is still here from an earlier attempt or turn."""
        with self._lock:
            if visit.key in self._visits or self.is_draining:
                return False
            self._visits[visit.key] = visit
            self._moves.append(events.ItemJoined(visit.key, visit.loaded.shared.timeout))
        self.wake()
        return True

    def withdraw(self, visit: Visit) -> None:
        with self._lock:
            self._moves.append(events.ItemWithdrawn(visit.key))
        self.wake()

    def leave(self, key: str) -> Visit | None:
        with self._lock:
            return self._visits.pop(key, None)

    def get(self, key: str) -> Visit | None:
        with self._lock:
            return self._visits.get(key)

    def __len__(self) -> int:
        return len(self._visits)

    def take_moves(self) -> list[events.ItemJoined | events.ItemWithdrawn]:
        with self._lock:
            moves, self._moves = self._moves, []
        return moves


def forward_event(event: events.Event, at: float, visits: Visits, writer: EventWriter) -> None:
    """Tells the followers what happens to an item that is here, and its activity that it has ended."""
    visit = visits.get(getattr(event, "item", ""))
    if visit is None:
        return
    if not isinstance(event, _UNFORWARDED):
        writer.write(visit.claim, _as_published(event, visit), at)
    if isinstance(event, events.ItemEnded):
        visits.leave(visit.key)
        visit.ended.set_result(event)


def _as_published(event: Any, visit: Visit) -> events.Event:
    """The event under the item's own name; leases are numbered on each machine, so theirs gets the claim as well."""
    changes: dict[str, str] = {"item": visit.turn.item}
    if lease := getattr(event, "lease", ""):
        changes["lease"] = f"{visit.claim.text}{lease}"
    published: events.Event = replace(event, **changes)
    return published
