"""Ports: interfaces between the core and the outside world. Each has at least two adapters."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agentos.core.constants import DEFAULT_CALL_TIMEOUT
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import EngineEvent, Event, Request, SchedulerEvent, WorkerEvent
from agentos.core.protocol.peer_notes import Note, RunGone
from agentos.core.protocol.results import FinishReason, Usage
from agentos.core.ratelimit.limits import LimitSeen


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` measures durations; `wall` gives the times that people see and that headers contain."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]


class Engine(Protocol):
    """Starts workers and carries messages between them and the event loop."""

    def execute(self, command: Command) -> None: ...

    def receive(self, timeout: float | None) -> list[EngineEvent | WorkerEvent]:
        """Wait for events, until `wake` is called or the timeout has passed."""
        ...

    def wake(self) -> None:
        """End a `receive` early. Safe to call from a signal handler."""
        ...

    def watch(self, descriptor: int) -> None:
        """From now on, `receive` also returns when this descriptor is readable; its owner does the reading."""
        ...

    def close(self) -> None: ...


class ControlRequest(Protocol):
    """A request from another terminal, which waits for the reply."""

    @property
    def request(self) -> Request: ...

    def reply(self, answer: Sequence[SchedulerEvent]) -> None: ...


class PeerLog(Protocol):
    """The log through which the runs on this host share the state of their keys."""

    def lock_and_read(self) -> AbstractContextManager[list[Note] | None]:
        """Hold the lock shared by all runs, and get the notes that the others have written since the last time.

        None if another run holds the lock: then no lease may be granted.
        """
        ...

    def append(self, notes: list[Note]) -> bool:
        """Write notes while holding the lock. False if they could not be written; call again later."""
        ...

    def gone(self, runs: set[str]) -> list[RunGone]:
        """Which of these runs have ended or died."""
        ...


class Listener(Protocol):
    """Receives every event of a run, with the wall time at which it was published."""

    def on_event(self, event: Event, at: float) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model requests. `arguments` is a JSON object.

    `signature` is opaque: Gemini expects it to be sent back with the call.
    """

    id: str
    name: str
    arguments: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message of a conversation. `role` is "user", "assistant" or "tool".

    An assistant's turn may contain tool calls; a tool's turn is the result of call `call_id` to the tool `tool`.
    """

    role: str
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call to a model. With a schema, the response is JSON that follows it.

    The model sees `system` as its instructions, then the blocks of `context`, then `prompt`. Put what never changes
    into `system` and what changes least first into `context`: providers cache prompts by their beginning.

    `max_output_tokens` and `effort` come from the settings of the role unless they are set here. `effort` is a word
    such as "low", or a number of thinking tokens.

    A conversation has `turns` instead of context and prompt. `tool_choice` is empty (the model decides), "any", "none"
    or a tool's name.
    """

    role: str
    prompt: str = ""
    schema: str | None = None
    system: str = ""
    context: tuple[str, ...] = ()
    max_output_tokens: int | None = None
    effort: str = ""
    turns: tuple[ChatTurn, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = ""
    temperature: float | None = None
    stop: tuple[str, ...] = ()

    @property
    def material(self) -> str:
        """Everything but the instructions, as one text."""
        return "\n\n".join((*self.context, self.prompt))

    @property
    def size(self) -> int:
        """Characters of the whole prompt."""
        calls = [call for turn in self.turns for call in turn.tool_calls]
        turns = sum(len(turn.text) for turn in self.turns) + sum(len(call.arguments) for call in calls)
        tools = sum(len(tool.description) + len(tool.parameters) for tool in self.tools)
        return len(self.system) + len(self.material) + turns + tools


@dataclass(frozen=True, slots=True)
class PaidCall:
    """The lease with which a call was made, and the run that granted it."""

    lease: str
    key: str
    model: str
    run: str = ""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's answer. `finish` says whether it is complete; `finish_detail` is the provider's own word for that."""

    text: str
    model: str
    usage: Usage
    limits: tuple[LimitSeen, ...] = ()
    finish: FinishReason = FinishReason.STOP
    finish_detail: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    paid: PaidCall | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of an answer that is still arriving: text, or a part of the tool call at `position` of the answer.

    The first piece of a call has its id and name; the arguments of all its pieces together are its arguments.
    """

    text: str = ""
    call: ToolCall | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class LeasedKey:
    """What a lease grants for one call: the key, and the address and model to use it with.

    `call_timeout` is how many seconds the call may go without receiving a token. `headers` are sent with it.
    """

    key: str
    secret: str
    base_url: str | None
    model: str
    call_timeout: float = DEFAULT_CALL_TIMEOUT
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"LeasedKey({self.key}, {self.model})"


OnProgress = Callable[[Usage], None]
OnPiece = Callable[[AnswerPiece], None]


class Provider(Protocol):
    """A vendor of models."""

    async def complete(
        self,
        request: ModelRequest,
        key: LeasedKey,
        on_progress: OnProgress | None = None,
        on_piece: OnPiece | None = None,
    ) -> ModelResponse:
        """Raise CallRefused or BadRequest if there is no response.

        `on_progress` is called with the usage so far whenever a piece of the answer arrives. If the call ends
        without a response, the last reported usage is what it cost. `on_piece` gets the pieces themselves, as the
        server sent them; all pieces of text together are the text of the response.
        """
        ...


class Documents(Protocol):
    """A project's files: written atomically, and never outside the project."""

    root: Path

    def write(self, name: str, content: bytes) -> object: ...

    def read(self, name: str) -> bytes: ...

    def exists(self, name: str) -> bool: ...

    def move(self, name: str, target: str) -> None: ...

    def remove(self, name: str) -> None:
        """Does nothing if there is no such file."""
        ...

    def names(self, folder: str) -> list[str]: ...

    def numbering(self) -> AbstractContextManager[None]:
        """Hold this lock while allocating a new number, so that no two processes use the same one."""
        ...


class Channel(Protocol):
    """A worker's connection to its coordinator."""

    def send(self, event: WorkerEvent) -> None: ...

    async def next(self) -> Command | None:
        """The next command; None when the coordinator is gone."""
        ...
