"""Client for Anthropic, through its SDK."""

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
from anthropic.types import Message

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest
from agentos.core.protocol.results import FinishReason
from agentos.models.anthropic.refusals import limits_seen, read_refusal, status_in_body
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    RESPONSE_HOOKS,
    PartialAnswer,
    VendorClient,
    closed,
    error_for,
    lower_case,
    positive_int,
    whole_body,
    without_limits,
)
from agentos.models.refusal_base import server_message
from agentos.models.registry import tls_context

MAX_OUTPUT_TOKENS = 16_000  # the API requires a limit
FINISHES = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.FILTERED,
    "pause_turn": FinishReason.PAUSED,
}
CACHED: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic(VendorClient[anthropic.AsyncAnthropic]):
    """Asks for messages."""

    def _connect(self, base_url: str | None) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(
            api_key=PLACEHOLDER_KEY,
            base_url=base_url,
            max_retries=0,
            timeout=None,
            http_client=anthropic.DefaultAsyncHttpxClient(
                event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport, timeout=None
            ),
        )

    async def _read(
        self, client: anthropic.AsyncAnthropic, request: ModelRequest, key: LeasedKey, answer: PartialAnswer
    ) -> AsyncGenerator[None]:
        messages = client.with_options(api_key=key.secret).messages
        raw = await messages.with_raw_response.create(**_parameters(request, key))
        answer.limits = limits_seen(lower_case(raw.headers))
        if (body := whole_body(raw.http_response)) is not None:
            _take_whole(answer, Message.construct(**body))
            yield
            return
        async with await raw.parse() as stream:
            async for event in stream:
                _take(answer, event)
                yield

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if not isinstance(error, anthropic.APIStatusError):
            return None
        headers = lower_case(error.response.headers)
        status = error.status_code if error.status_code >= 400 else status_in_body(error.body)
        message = server_message(error.response, error.body)
        refusal = read_refusal(status, error.body, headers, time.time(), message)
        return error_for(refusal, f"{status}: {message}")


def _parameters(request: ModelRequest, key: LeasedKey) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "model": key.model,
        "max_tokens": request.max_output_tokens or MAX_OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": _content(request)}],
        "stream": True,
    }
    if request.system:
        parameters["system"] = [{"type": "text", "text": request.system, **CACHED}]
    output: dict[str, Any] = {}
    if request.effort.isdecimal():
        parameters["thinking"] = {"type": "enabled", "budget_tokens": int(request.effort)}
    elif request.effort:
        output["effort"] = request.effort
    if request.schema is not None:
        schema = without_limits(closed(json.loads(request.schema)))
        output["format"] = {"type": "json_schema", "schema": schema}
    return {**parameters, **({"output_config": output} if output else {})}


def _content(request: ModelRequest) -> list[dict[str, Any]]:
    """The blocks that the next call repeats are marked for the cache."""
    stable = [{"type": "text", "text": text, **CACHED} for text in request.context]
    return [*stable, {"type": "text", "text": request.prompt}]


def _take(answer: PartialAnswer, event: Any) -> None:
    match event.type:
        case "message_start":
            answer.model = event.message.model or ""
            _count(answer, event.message.usage)
        case "content_block_start":
            answer.add_text(getattr(event.content_block, "text", None))
        case "content_block_delta":
            answer.add_text(getattr(event.delta, "text", None))
            answer.add_thought(getattr(event.delta, "thinking", None))
        case "message_delta":
            answer.end(event.delta.stop_reason, FINISHES)
            _count(answer, event.usage)


def _take_whole(answer: PartialAnswer, message: Message) -> None:
    for block in message.content:
        answer.add_text(block.text if block.type == "text" else None)
    answer.model = message.model or ""
    _count(answer, message.usage)
    answer.end(message.stop_reason or "end_turn", FINISHES)


def _count(answer: PartialAnswer, counted: Any) -> None:
    """Later counts replace earlier ones. Tokens read from and written to the cache are input, too."""
    found = sum(positive_int(getattr(counted, name, None)) for name in INPUT_COUNTS)
    answer.input_tokens = found or answer.input_tokens
    answer.output_tokens = positive_int(getattr(counted, "output_tokens", None)) or answer.output_tokens
    written, read = (positive_int(getattr(counted, name, None)) for name in INPUT_COUNTS[1:])
    answer.cache_read_tokens = read or answer.cache_read_tokens
    answer.cache_write_tokens = written or answer.cache_write_tokens
