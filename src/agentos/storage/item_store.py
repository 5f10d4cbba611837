"""The item store, a port: everything that is kept about an item between its start and its end.

The worker of an item uses `ItemStore`; everybody else accesses a project's items through `ProjectItems`. On one machine,
both are implemented with files (`file_items.py`).
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentos.core.planning.gates import ReviewState
from agentos.core.planning.items import ItemStatus
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Outcome, Verdict

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

Tidy = Callable[[Documents], None]
"""A workflow's clean-up of the documents of a finished item. Must be idempotent."""
IsRedo = Callable[[Mapping[str, str]], bool]
"""Whether these notes belong to an approved item that is being redone."""


class Checkpoint(Protocol):
    """The open checkpoint of one item: `saver` for LangGraph, and named notes for agentos itself."""

    @property
    def saver(self) -> "BaseCheckpointSaver[Any]": ...

    async def note(self, name: str, text: str) -> None:
        """Store a note. It is durable when this returns."""
        ...

    async def noted(self, name: str) -> str | None: ...

    async def forget(self, name: str) -> None:
        """Delete a note, if there is one."""
        ...

    async def count_answers(self) -> int:
        """How many model responses are stored."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on an item.

    is_retry: the same run had the item before, and may have died right after finishing it.
    is_first: with `--fresh`, the item still has to be reset before it starts over.
    """

    is_retry: bool = False
    is_first: bool = True


class ItemStore(Protocol):
    """Everything the worker of one item stores. Between `claim` and `release`, nobody else changes it.

    documents: the project's files as this item may use them.
    thread_id: identifies the item's checkpoints for LangGraph.
    place: where things are stored, for messages.
    """

    documents: Documents
    thread_id: str
    place: str

    async def claim(self) -> Claim | Outcome:
        """Claim the item; return its outcome instead if another run holds it."""
        ...

    async def release(self) -> None: ...

    async def earlier_verdict(self, status: Callable[[], ItemStatus], is_redo: IsRedo) -> Verdict | None:
        """The verdict of an item that is finished; `status` derives its status from the project's files.

        `is_redo` says whether the checkpoint belongs to an approved item that is being redone.
        """
        ...

    async def check(self) -> str:
        """Move a damaged checkpoint aside and return its new name; empty if it was intact or missing."""
        ...

    def open(self) -> AbstractAsyncContextManager[Checkpoint]:
        """Open or create the checkpoint."""
        ...

    async def clean_up(self, tidy: Tidy) -> None:
        """Delete the checkpoint of an item that is finished or starts over."""
        ...

    async def finish(self, tidy: Tidy, outcome: Outcome) -> None:
        """Record that the item is done, then delete its checkpoint."""
        ...

    def is_unavailable(self, error: BaseException) -> bool:
        """Whether the error means that the store temporarily accepts no writes, as with a full disk."""
        ...

    def is_lost(self, error: BaseException) -> bool:
        """Whether the error means that the claim has passed to somebody else."""
        ...

    def kept_answers(self) -> list[str]:
        """The stored model responses; empty where the journals of the runs that paid for them are not available."""
        ...

    async def unavailable(self) -> str:
        """The place that accepts no writes; empty if all do."""
        ...


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """An item that waits for a person, or was decided but has not resumed; `key` identifies its checkpoint."""

    key: str
    state: ReviewState


class ProjectItems(Protocol):
    """What is stored about a project's items, for planning, review and clean-up."""

    documents: Documents

    def key(self, workflow: str, number: int) -> str:
        """The key that identifies the checkpoint of an item."""
        ...

    def keys(self) -> set[str]:
        """The checkpoints that exist."""
        ...

    def held(self) -> dict[str, str]:
        """The items that are being worked on now, and by whom."""
        ...

    def notes(self, key: str) -> Mapping[str, str]:
        """The notes in a checkpoint, except the stored model responses. Writes nothing."""
        ...

    def parked(self) -> list[ParkedRecord]: ...

    def deciding(self, key: str, item: str) -> AbstractContextManager[Mapping[str, str] | None]:
        """Keep every run away from the item; yield its notes, or None if it is being worked on."""
        ...

    def write_note(self, key: str, name: str, text: str) -> None:
        """Store a note durably. Call it only while `deciding`."""
        ...

    def clean_finished(self, finished: Mapping[str, str], tidy: Callable[[str], None]) -> None:
        """Tidy finished items whose processes died before they could, and delete their leftover checkpoints (by key)."""
        ...
