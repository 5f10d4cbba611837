"""What the hands can do; each port has at least two adapters."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import EngineEvent, Event, News, Request, WorkerEvent
from agentos.core.protocol.peer_notes import Note, RunGone
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.limits import LimitSeen


class Engine(Protocol):
    """Starts workers, carries messages."""

    def execute(self, command: Command) -> None: ...

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


class ControlRequest(Protocol):
    """A request of somebody who waits for what comes of it."""

    @property
    def request(self) -> Request: ...

    def reply(self, news: Sequence[News]) -> None: ...


class PeerLog(Protocol):
    """The other runs on this host, as far as keys go."""

    def lock_and_read(self) -> AbstractContextManager[list[Note] | None]:
        """Nobody else decides meanwhile; gives what the others have done since the last turn.

        None while it is somebody else's: then no key may be given out.
        """
        ...

    def append(self, notes: list[Note]) -> bool:
        """Tells the others, within a turn; false while they cannot be told, and it has to be tried again."""
        ...

    def gone(self, runs: set[str]) -> list[RunGone]:
        """Those of the runs that have ended or died."""
        ...


class Listener(Protocol):
    """Hears every event, with the wall time at which it was told."""

    def on_event(self, event: Event, at: float) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a model; with a schema, the answer is JSON by it."""

    role: str
    prompt: str
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ModelResponse:
    text: str
    model: str
    usage: Usage
    limits: tuple[LimitSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class LeasedKey:
    """What a lease gives for one call: the key, and where it is to be used."""

    key: str
    secret: str
    base_url: str | None
    model: str

    def __repr__(self) -> str:
        return f"Access({self.key}, {self.model})"


class Provider(Protocol):
    """A vendor of models."""

    async def complete(self, question: ModelRequest, access: LeasedKey) -> ModelResponse:
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

    def send(self, event: WorkerEvent) -> None: ...

    async def next(self) -> Command | None:
        """The next command; None when the coordinator is gone."""
        ...
