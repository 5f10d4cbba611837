"""The item store, a port: everything that is kept about an item between its start and its end.

`ItemStore` is what the worker of one item uses, `ProjectItems` what everybody else sees of a project's items. On one
machine both are files (`file_items.py`).
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentos.core.planning.gates import ReviewState
from agentos.core.planning.plan import ItemStatus
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Outcome, Verdict

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

Tidy = Callable[[Documents], None]
"""A workflow's clean-up of the documents of a finished item. Must be idempotent."""
IsRedo = Callable[[Mapping[str, str]], bool]
"""Whether these notes are of an approved item that is being redone."""


class Checkpoint(Protocol):
    """The open checkpoint of one item: `saver` for LangGraph, and named notes for agentos itself."""

    @property
    def saver(self) -> "BaseCheckpointSaver[Any]": ...

    async def note(self, name: str, text: str) -> None:
        """Stores a note. It is durable when this returns."""
        ...

    async def noted(self, name: str) -> str | None: ...

    async def forget(self, name: str) -> None:
        """Deletes a note, if there is one."""
        ...

    async def count_answers(self) -> int:
        """How many model responses are stored."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on an item.

    is_retry: the same run had it before, and may have died right after finishing it.
    is_first: what starts an item over (`--fresh`) is still to be done, if the task asks for it.
    """

    is_retry: bool = False
    is_first: bool = True


class ItemStore(Protocol):
    """What the worker of one item keeps. After `claim`, nobody else changes anything of the item until `release`.

    documents: the project's files as this item may use them.
    thread_id: names the item's checkpoints for LangGraph.
    place: where it keeps things, for messages.
    """

    documents: Documents
    thread_id: str
    place: str

    async def claim(self) -> Claim | Outcome:
        """The claim, or the item's outcome if another run holds it."""
        ...

    async def release(self) -> None: ...

    async def earlier_verdict(self, status: Callable[[], ItemStatus], is_redo: IsRedo) -> Verdict | None:
        """The verdict of an item that is finished; `status` derives its status from the project's files.

        `is_redo` says whether the checkpoint is of an approved item that is being redone.
        """
        ...

    async def check(self) -> str:
        """Moves a damaged checkpoint aside and returns its new name; empty if there is nothing to say."""
        ...

    def open(self) -> AbstractAsyncContextManager[Checkpoint]:
        """Opens or creates the checkpoint."""
        ...

    async def clean_up(self, tidy: Tidy) -> None:
        """Deletes the checkpoint of an item that is finished or starts over."""
        ...

    async def finish(self, tidy: Tidy, outcome: Outcome) -> None:
        """Records that the item is done, then deletes its checkpoint."""
        ...

    def is_unavailable(self, error: BaseException) -> bool:
        """Whether the error means that the store takes no writes for now, as a full disk does."""
        ...

    def is_lost(self, error: BaseException) -> bool:
        """Whether the error means that the claim has passed to somebody else."""
        ...

    def kept_answers(self) -> list[str]:
        """The stored model responses; none where the journals of the runs that paid for them are not at hand."""
        ...

    async def unavailable(self) -> str:
        """The place that takes no writes; empty if all do."""
        ...


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """An item that waits for a person, or was decided and not yet continued; `key` names its checkpoint."""

    key: str
    state: ReviewState


class ProjectItems(Protocol):
    """What is kept about a project's items, for those who plan, review and clean up."""

    documents: Documents

    def key(self, workflow: str, number: int) -> str:
        """Names the checkpoint of an item."""
        ...

    def keys(self) -> set[str]:
        """The checkpoints that exist."""
        ...

    def held(self) -> dict[str, str]:
        """The items that somebody works on now, and who."""
        ...

    def notes(self, key: str) -> Mapping[str, str]:
        """The notes in a checkpoint, except the stored model responses. Writes nothing."""
        ...

    def parked(self) -> list[ParkedRecord]: ...

    def deciding(self, key: str, item: str) -> AbstractContextManager[Mapping[str, str] | None]:
        """Keeps every run away from the item; gives its notes, or None if somebody is working on it."""
        ...

    def write_note(self, key: str, name: str, text: str) -> None:
        """Stores a note durably. Call it only while `deciding`."""
        ...

    def clean_finished(self, finished: Mapping[str, str], tidy: Callable[[str], None]) -> None:
        """Delete leftover checkpoints of finished items, by key; their processes died before they could. Tidies each."""
        ...
