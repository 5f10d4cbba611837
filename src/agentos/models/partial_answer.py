"""A model's answer while its stream is being read."""

import math
import secrets
from dataclasses import dataclass, field, replace

from agentos.core.errors import CallRefused, EmptyAnswer
from agentos.core.protocol.ports import AnswerPiece, LeasedKey, ModelResponse, OnPiece, ToolCall
from agentos.core.protocol.results import FinishReason, Usage
from agentos.core.ratelimit.limits import LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models import CHARS_PER_TOKEN

MAX_TOKEN_COUNT = 10**9  # no call comes near it; a larger count is invalid
UNFINISHED = "the stream ended before the answer did"


@dataclass(slots=True)
class PartialAnswer:
    """The part of an answer that has arrived so far. A vendor's client fills it in while it reads the stream.

    `characters` counts everything the model wrote, including thoughts. Tokens are the server's own counts; where it
    has given none so far, they are estimated.
    """

    prompt_characters: int
    parts: list[str] = field(default_factory=list)
    model: str = ""
    limits: tuple[LimitSeen, ...] = ()
    characters: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    finish: FinishReason | None = None
    detail: str = ""
    """The provider's own word for why the answer ended."""
    tool_calls: dict[int, ToolCall] = field(default_factory=dict)
    """By their position in the answer."""
    on_piece: OnPiece | None = None

    def add_text(self, text: object) -> None:
        if text:
            self.parts.append(checked_text(text))
            self.add_thought(text)
            if self.on_piece:
                self.on_piece(AnswerPiece(self.parts[-1]))

    def add_thought(self, text: object) -> None:
        """Text that is billed as output and is not part of the answer."""
        self.characters += len(text) if isinstance(text, str) else 0

    def add_tool_call(
        self, index: object, name: object = None, arguments: object = None, identifier: object = None
    ) -> None:
        """Add a call, or more of its arguments, which arrive in pieces."""
        position = index if type(index) is int else len(self.tool_calls)
        call = self.tool_calls.get(position, ToolCall("", "", ""))
        piece = checked_text(arguments) if arguments else ""
        self.add_thought(piece)
        new = replace(
            call,
            # If the server gives no id, one is generated, because results refer to calls by id.
            id=call.id or checked_text(identifier or "") or f"call_{secrets.token_hex(8)}",
            name=call.name or checked_text(name or ""),
            arguments=call.arguments + piece,
        )
        self.tool_calls[position] = new
        if self.on_piece:
            is_first = not call.id
            part = ToolCall(new.id if is_first else "", new.name if is_first else "", piece)
            self.on_piece(AnswerPiece(call=part, position=position))

    def end(self, word: object, reasons: dict[str, FinishReason]) -> None:
        """Note the provider's finish reason; one that we do not know is OTHER."""
        if word:
            self.detail = str(word)[:100]
            self.finish = reasons.get(self.detail, FinishReason.OTHER)

    @property
    def has_begun(self) -> bool:
        return bool(self.characters or self.tool_calls or self.finish or self.output_tokens)

    def usage(self) -> Usage:
        """What the call has used so far; nothing before the first token."""
        if not self.has_begun:
            return Usage()
        estimate = math.ceil(self.characters / CHARS_PER_TOKEN)
        # Before the end, a server's count may lag behind what it has sent.
        output = (
            self.output_tokens if self.finish and self.output_tokens else max(self.output_tokens, estimate)
        )
        return Usage(
            1,
            self.input_tokens or math.ceil(self.prompt_characters / CHARS_PER_TOKEN),
            output,
            min(self.cache_read_tokens, self.input_tokens),
            min(self.cache_write_tokens, self.input_tokens),
        )

    def response(self, key: LeasedKey, *, may_be_empty: bool = False) -> ModelResponse:
        """The whole answer, after the stream has ended."""
        if self.finish is None:
            raise CallRefused(Refusal(RefusalKind.PROVIDER_ERROR, f"no response: {UNFINISHED}"))
        text = "".join(self.parts)
        if not text and not may_be_empty:
            raise EmptyAnswer(self.finish, f"finish reason: {self.detail or self.finish}")
        return ModelResponse(
            text,
            checked_text(self.model or key.model),
            self.usage(),
            self.limits,
            # Each vendor has its own word for an answer that ends with tool calls.
            FinishReason.STOP if self.tool_calls and self.finish is FinishReason.OTHER else self.finish,
            self.detail,
            tuple(replace(call, arguments=call.arguments or "{}") for call in self.tool_calls.values()),
        )


def checked_text(value: object) -> str:
    """Return the value if it is text. The SDKs do not validate responses, so it may be anything."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def positive_int(value: object) -> int:
    """The value if it is a plausible, positive number of tokens, else 0."""
    return value if type(value) is int and 0 < value <= MAX_TOKEN_COUNT else 0
