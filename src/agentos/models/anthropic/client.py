"""Client for Anthropic, through its SDK."""

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
from anthropic.types import Message

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import ChatTurn, LeasedKey, ModelRequest
from agentos.core.protocol.results import FinishReason
from agentos.models.anthropic.refusals import limits_seen, read_refusal, status_in_body
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    RESPONSE_HOOKS,
    VendorClient,
    closed,
    error_for,
    lower_case,
    whole_body,
    without_limits,
)
from agentos.models.partial_answer import PartialAnswer, positive_int
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
    """Uses the messages API."""

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
        "messages": _messages(request) or [{"role": "user", "content": _content(request)}],
        "stream": True,
        "extra_headers": dict(key.headers) or None,
    }
    if request.system:
        parameters["system"] = [{"type": "text", "text": request.system, **CACHED}]
    if request.temperature is not None:
        parameters["extra_body"] = {"temperature": request.temperature}  # the SDK has no parameter for it
    if request.stop:
        parameters["stop_sequences"] = list(request.stop)
    parameters |= _tools(request)
    output: dict[str, Any] = {}
    # A conversation with tools may only continue with its earlier thoughts, which are not kept.
    if request.effort.isdecimal() and not request.tools:
        parameters["thinking"] = {"type": "enabled", "budget_tokens": int(request.effort)}
    elif request.effort and not request.effort.isdecimal():
        output["effort"] = request.effort
    if request.schema is not None:
        schema = without_limits(closed(json.loads(request.schema)))
        output["format"] = {"type": "json_schema", "schema": schema}
    return {**parameters, **({"output_config": output} if output else {})}


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.parameters)}
        for tool in request.tools
    ]
    match request.tool_choice:
        case "":
            return {"tools": tools}
        case "any" | "none" as word:
            return {"tools": tools, "tool_choice": {"type": word}}
        case name:
            return {"tools": tools, "tool_choice": {"type": "tool", "name": name}}


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    """The turns as messages; consecutive turns of one side become one message."""
    messages: list[dict[str, Any]] = []
    for turn in request.turns:
        role = "assistant" if turn.role == "assistant" else "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
        messages[-1]["content"] += _blocks(turn)
    return [message for message in messages if message["content"]]


def _blocks(turn: ChatTurn) -> list[dict[str, Any]]:
    if turn.role == "tool":
        return [{"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text}]
    text = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in turn.tool_calls
    ]
    return [*text, *calls]


def _content(request: ModelRequest) -> list[dict[str, Any]]:
    """The prompt as blocks; those that the next call repeats are marked for the cache."""
    stable = [{"type": "text", "text": text, **CACHED} for text in request.context]
    return [*stable, {"type": "text", "text": request.prompt}]


def _take(answer: PartialAnswer, event: Any) -> None:
    match event.type:
        case "message_start":
            answer.model = event.message.model or ""
            _count(answer, event.message.usage)
        case "content_block_start":
            answer.add_text(getattr(event.content_block, "text", None))
            if event.content_block.type == "tool_use":
                answer.add_tool_call(event.index, event.content_block.name, None, event.content_block.id)
        case "content_block_delta":
            answer.add_text(getattr(event.delta, "text", None))
            if arguments := getattr(event.delta, "partial_json", None):
                answer.add_tool_call(event.index, arguments=arguments)
            answer.add_thought(getattr(event.delta, "thinking", None))
        case "message_delta":
            answer.end(event.delta.stop_reason, FINISHES)
            _count(answer, event.usage)


def _take_whole(answer: PartialAnswer, message: Message) -> None:
    for block in message.content:
        answer.add_text(block.text if block.type == "text" else None)
        if block.type == "tool_use":
            answer.add_tool_call(None, block.name, json.dumps(block.input), block.id)
    answer.model = message.model or ""
    _count(answer, message.usage)
    answer.end(message.stop_reason or "end_turn", FINISHES)


def _count(answer: PartialAnswer, counted: Any) -> None:
    """Later counts replace earlier ones. Tokens read from and written to the cache count as input too."""
    found = sum(positive_int(getattr(counted, name, None)) for name in INPUT_COUNTS)
    answer.input_tokens = found or answer.input_tokens
    answer.output_tokens = positive_int(getattr(counted, "output_tokens", None)) or answer.output_tokens
    written, read = (positive_int(getattr(counted, name, None)) for name in INPUT_COUNTS[1:])
    answer.cache_read_tokens = read or answer.cache_read_tokens
    answer.cache_write_tokens = written or answer.cache_write_tokens
