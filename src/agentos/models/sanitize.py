"""Sanitizes everything that a model server sends, before anything else sees it."""

import re
from collections.abc import Callable
from dataclasses import replace

from agentos.core.errors import EmptyAnswer
from agentos.core.protocol.ports import AnswerPiece, ModelResponse, OnPiece, ToolCall
from agentos.core.text.line_assembler import clean, find_open_escape, one_line
from agentos.core.text.secrets import Redactor

MAX_MODEL_NAME = 200  # characters
MAX_HELD = 64 * 1024  # characters of a piece's text that are held back
_LOCAL_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/~.].*[\\/]|.*[\\/](?=[^\\/]+\.(?:gguf|bin|safetensors)$)")


def model_label(model: str) -> str:
    """A model's name for documents and logs; if it is a path on the server's disk, only the file name."""
    return _LOCAL_PATH.sub("", model[:MAX_MODEL_NAME]) or model[:MAX_MODEL_NAME]


class PieceSanitizer:
    """Passes on the pieces of an answer while it arrives, sanitized as the whole answer will be.

    The end of a piece that may be the start of a key or of an escape sequence waits for the next piece. Call `close`
    after the last one.
    """

    def __init__(self, redactor: Redactor, on_piece: OnPiece) -> None:
        self.passed_on = False
        self._redactor = redactor
        self._on_piece = on_piece
        self._held: dict[int | None, str] = {}
        """What is held back, of the text and of the arguments of each tool call."""

    def __call__(self, piece: AnswerPiece) -> None:
        channel = piece.position if piece.call else None
        text = self._held.get(channel, "") + (piece.call.arguments if piece.call else piece.text)
        end = self._settled(text)
        self._held[channel] = text[end:]
        self._pass_on(piece, self._clean(text[:end]))

    def close(self) -> None:
        for channel, text in self._held.items():
            call = None if channel is None else ToolCall("", "", "")
            self._pass_on(AnswerPiece(call=call, position=channel or 0), self._clean(text))
        self._held.clear()

    def _pass_on(self, piece: AnswerPiece, text: str) -> None:
        if piece.call is None:
            piece = AnswerPiece(text)
        else:
            call = ToolCall(self._clean(piece.call.id), self._clean(piece.call.name), text)
            piece = replace(piece, call=call)
        if text or (piece.call and piece.call.name):
            self.passed_on = True
            self._on_piece(piece)

    def _settled(self, text: str) -> int:
        """How much of the text is final, whatever follows."""
        if len(text) > MAX_HELD:
            return len(text)
        line = max(text.rfind("\n"), text.rfind("\r")) + 1
        end = min(line + find_open_escape(text[line:]), self._redactor.find_open_secret(text))
        # A carriage return may be the first half of a line break.
        return end - 1 if text[:end].endswith("\r") else end

    def _clean(self, text: str) -> str:
        return _storable(text, self._redactor)


def sanitize(response: ModelResponse, redact: Callable[[str], str], *, may_be_empty: bool) -> ModelResponse:
    """Mask keys and make all text storable.

    Terminal escapes, control characters and lone surrogates could not be written to a document or a checkpoint.
    """
    text = _storable(response.text, redact)
    if not text.strip() and not may_be_empty:
        raise EmptyAnswer(response.finish, "no text that can be printed")
    calls = tuple(
        ToolCall(
            *(_storable(value, redact) for value in (call.id, call.name, call.arguments, call.signature))
        )
        for call in response.tool_calls
    )
    model = one_line(redact(model_label(response.model)))
    return replace(response, text=text, model=model, tool_calls=calls)


def _storable(text: str, redact: Callable[[str], str]) -> str:
    lines = redact(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(clean(line) for line in lines).encode("utf-8", "replace").decode("utf-8")
