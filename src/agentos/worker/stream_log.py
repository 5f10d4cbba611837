"""Turns what a graph streams (`get_stream_writer`, models' tokens) into whole lines for the item's log."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk

from agentos.worker.questions import json_text


def custom_line(value: object) -> str:
    """The line for what a node passed to its stream writer."""
    return value if isinstance(value, str) else json_text(value)


class TokenLog(BaseCallbackHandler):
    """Logs the text of models that a node streams from, line by line. Does not turn other calls into streams."""

    run_inline = True

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._texts: dict[UUID, str] = {}

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **_: Any) -> None:
        # Some models stream content blocks, such as thinking and text, instead of strings.
        self._add(AIMessageChunk(content=token).text, run_id)

    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> None:
        """A piece that a node reads with `stream_events`."""
        if event["event"] == "content-block-delta" and event["delta"]["type"] == "text-delta":
            self._add(event["delta"]["text"], run_id)

    def _add(self, piece: str, run_id: UUID) -> None:
        *lines, rest = (self._texts.get(run_id, "") + piece).split("\n")
        for line in lines:
            self._echo(line)
        self._texts[run_id] = rest

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        self._flush(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        self._flush(run_id)

    def _flush(self, run_id: UUID) -> None:
        if rest := self._texts.pop(run_id, ""):
            self._echo(rest)
