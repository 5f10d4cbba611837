"""Client for OpenAI and compatible servers, through the OpenAI SDK."""

import json
import time
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import openai
from openai.types.chat import ChatCompletion

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import ChatTurn, LeasedKey, ModelRequest
from agentos.core.protocol.results import FinishReason
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    RESPONSE_HOOKS,
    VendorClient,
    closed,
    error_for,
    lower_case,
    whole_body,
)
from agentos.models.openai import ensure_version
from agentos.models.openai.refusals import limits_seen, read_refusal, status_in_body
from agentos.models.partial_answer import PartialAnswer, positive_int
from agentos.models.refusal_base import error_object, server_message
from agentos.models.registry import tls_context

FINISHES = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.FILTERED,
    "refusal": FinishReason.FILTERED,
}
OWN_HOSTS = ("openai.com", "openai.azure.com")


class OpenAI(VendorClient[openai.AsyncOpenAI]):
    """Uses the chat completions API."""

    def _connect(self, base_url: str | None) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=PLACEHOLDER_KEY,
            base_url=base_url and ensure_version(base_url),
            max_retries=0,
            timeout=None,
            http_client=openai.DefaultAsyncHttpxClient(
                event_hooks=RESPONSE_HOOKS, verify=tls_context(), transport=self._transport, timeout=None
            ),
        )

    async def _read(
        self, client: openai.AsyncOpenAI, request: ModelRequest, key: LeasedKey, answer: PartialAnswer
    ) -> AsyncGenerator[None]:
        completions = client.with_options(api_key=key.secret).chat.completions
        raw = await completions.with_raw_response.create(**_parameters(request, key))
        answer.limits = limits_seen(lower_case(raw.headers))
        if (body := whole_body(raw.http_response)) is not None:
            _take_whole(answer, body, lower_case(raw.headers))
            yield
            return
        async with raw.parse() as stream:
            async for chunk in stream:
                _take(answer, chunk, "delta")
                yield

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if isinstance(error, openai.APIStatusError):
            headers = lower_case(error.response.headers)
            message = server_message(error.response, error.body)
            refusal = read_refusal(error.status_code, error.body, headers, time.time(), message)
            return error_for(refusal, f"{error.status_code}: {message}")
        if isinstance(error, openai.APIError) and isinstance(error.body, dict):
            return _error_in_answer(error.body, {})
        return None


def _parameters(request: ModelRequest, key: LeasedKey) -> dict[str, Any]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    turns = [_message(turn) for turn in request.turns] or [{"role": "user", "content": request.material}]
    parameters: dict[str, Any] = {
        "model": key.model,
        "messages": [*system, *turns],
        "stream": True,
        "extra_headers": dict(key.headers) or None,
        "stream_options": {"include_usage": True},
    }
    if request.max_output_tokens:
        parameters[_limit_name(key.base_url)] = request.max_output_tokens
    if request.effort:
        parameters["reasoning_effort"] = request.effort
    if request.schema is not None:
        schema = {"name": "verdict", "strict": True, "schema": closed(json.loads(request.schema))}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.temperature is not None:
        parameters["temperature"] = request.temperature
    if request.stop:
        parameters["stop"] = list(request.stop)
    return {**parameters, **_tools(request)}


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
        for tool in request.tools
    ]
    found: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in functions]}
    match request.tool_choice:
        case "":
            pass
        case "any":
            found["tool_choice"] = "required"
        case "none":
            found["tool_choice"] = "none"
        case name:
            found["tool_choice"] = {"type": "function", "function": {"name": name}}
    return found


def _message(turn: ChatTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.role == "tool":
        message["tool_call_id"] = turn.call_id
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in turn.tool_calls
        ]
    return message


def _limit_name(base_url: str | None) -> str:
    """The parameter's name: OpenAI's own models refuse the old one; compatible servers often know no other."""
    host = urlsplit(base_url or "").hostname or ""
    is_own = not base_url or any(host == own or host.endswith(f".{own}") for own in OWN_HOSTS)
    return "max_completion_tokens" if is_own else "max_tokens"


def _take_whole(answer: PartialAnswer, body: dict[str, Any], headers: dict[str, str]) -> None:
    completion = ChatCompletion.construct(**body)
    if not completion.choices and (error := error_object(body)):
        # Some servers report an error inside a response with status 200.
        raise _error_in_answer(error, headers)
    _take(answer, completion, "message")
    answer.end(answer.detail or "stop", FINISHES)


def _take(answer: PartialAnswer, chunk: Any, part: str) -> None:
    """Add a chunk of a stream or a whole completion; the two differ in the name of the part that holds the text."""
    answer.model = answer.model or chunk.model or ""
    if counted := chunk.usage:
        answer.input_tokens = positive_int(counted.prompt_tokens)
        answer.output_tokens = positive_int(counted.completion_tokens)
        # A compatible server may send something else, or nothing, in place of the details.
        details = getattr(counted, "prompt_tokens_details", None)
        answer.cache_read_tokens = positive_int(getattr(details, "cached_tokens", None))
        answer.cache_write_tokens = positive_int(getattr(details, "cache_write_tokens", None))
    if not chunk.choices:
        return
    choice = chunk.choices[0]
    text = getattr(choice, part)
    if text is not None:
        answer.add_text(text.content)
        for call in getattr(text, "tool_calls", None) or []:
            index = getattr(call, "index", None)
            answer.add_tool_call(index, call.function.name, call.function.arguments, call.id)
        # The thoughts of a reasoning model, as compatible servers send them.
        answer.add_thought(getattr(text, "reasoning_content", None) or getattr(text, "reasoning", None))
        answer.end(choice.finish_reason, FINISHES)
        if getattr(text, "refusal", None):
            answer.end("refusal", FINISHES)


def _error_in_answer(error: dict[str, Any], headers: dict[str, str]) -> CallRefused | BadRequest:
    message = str(error.get("message") or "error without a message")
    refusal = read_refusal(status_in_body(error), {"error": error}, headers, time.time(), message)
    return error_for(refusal, message)
