"""What the hands can do; each port has at least two adapters."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentos.core.commands import Command
from agentos.core.events import EngineEvent, Event, News, Request, WorkerEvent
from agentos.core.loads import LimitSeen
from agentos.core.neighbours import Note, RunGone
from agentos.core.results import Usage


class Engine(Protocol):
    """Starts workers, carries messages."""

    def obey(self, command: Command) -> None: ...

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        """Waits until something happened, `wake` was called or the time is over."""
        ...

    def wake(self) -> None:
        """Ends a `receive`; may be called from a signal handler."""
        ...

    def watch(self, descriptor: int) -> None:
        """From now on, a `receive` ends also when this can be read; whoever opened it reads it."""
        ...

    def close(self) -> None: ...


class Asked(Protocol):
    """A request of somebody who waits for what comes of it."""

    @property
    def request(self) -> Request: ...

    def answer(self, news: Sequence[News]) -> None: ...


class Neighbours(Protocol):
    """The other runs on this host, as far as keys go."""

    def turn(self) -> AbstractContextManager[list[Note] | None]:
        """Nobody else decides meanwhile; gives what the others have done since the last turn.

        None while it is somebody else's: then no key may be given out.
        """
        ...

    def leave(self, notes: list[Note]) -> bool:
        """Tells the others, within a turn; false while they cannot be told, and it has to be tried again."""
        ...

    def gone(self, runs: set[str]) -> list[RunGone]:
        """Those of the runs that have ended or died."""
        ...


class Listener(Protocol):
    """Hears every event, with the wall time at which it was told."""

    def hear(self, event: Event, at: float) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Question:
    """One call to a model; with a schema, the answer is JSON by it."""

    role: str
    prompt: str
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    model: str
    usage: Usage
    limits: tuple[LimitSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """What a lease gives for one call: the key, and where it is to be used."""

    key: str
    secret: str
    base_url: str | None
    model: str

    def __repr__(self) -> str:
        return f"Access({self.key}, {self.model})"


class Provider(Protocol):
    """A vendor of models."""

    async def ask(self, question: Question, access: Access) -> Answer:
        """Raises CallRefused or BadRequest."""
        ...


class Documents(Protocol):
    """A project's files: whole or not there, and none outside of it."""

    root: Path

    def write(self, name: str, content: bytes) -> object: ...

    def read(self, name: str) -> bytes: ...

    def exists(self, name: str) -> bool: ...

    def move(self, name: str, target: str) -> None: ...

    def remove(self, name: str) -> None:
        """Gone already is as good."""
        ...

    def names(self, folder: str) -> list[str]: ...

    def numbering(self) -> AbstractContextManager[None]:
        """Held while a new number is given out, so that no other process gives the same."""
        ...


class Channel(Protocol):
    """A worker's line to its coordinator."""

    def tell(self, event: WorkerEvent) -> None: ...

    async def next(self) -> Command | None:
        """The next command; None when the coordinator is gone."""
        ...
