"""Client for Gemini, through the google-genai SDK."""

import base64
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from google import genai
from google.genai import errors, types

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import ChatTurn, LeasedKey, ModelRequest
from agentos.core.protocol.results import FinishReason
from agentos.models.client_base import (
    PLACEHOLDER_KEY,
    RESPONSE_HOOKS,
    VendorClient,
    error_for,
    lower_case,
)
from agentos.models.gemini.refusals import read_refusal
from agentos.models.partial_answer import PartialAnswer, positive_int
from agentos.models.refusal_base import server_message
from agentos.models.registry import tls_context

_FILTERED = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE")
FINISHES = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    **dict.fromkeys(_FILTERED, FinishReason.FILTERED),
}


class Gemini(VendorClient[genai.Client]):
    """Generates content; the key is sent in a header of each call."""

    def _connect(self, base_url: str | None) -> genai.Client:
        # `verify` is for the SDK's HTTP client, `ssl` for its WebSockets.
        tls = {"verify": tls_context(), "ssl": tls_context()}
        transport = {"transport": self._transport} if self._transport else {}
        # Without a timeout in the SDK, which would also ask the server to give up after it.
        options = types.HttpOptions(
            base_url=base_url,
            client_args=tls,
            async_client_args={**tls, "event_hooks": RESPONSE_HOOKS, "timeout": None, **transport},
        )
        return genai.Client(api_key=PLACEHOLDER_KEY, http_options=options)

    async def _read(
        self, client: genai.Client, request: ModelRequest, key: LeasedKey, answer: PartialAnswer
    ) -> AsyncGenerator[None]:
        stream = await client.aio.models.generate_content_stream(
            model=key.model, contents=_contents(request), config=_config(request, key)
        )
        async for chunk in stream:
            _take(answer, chunk)
            yield

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        if not isinstance(error, errors.APIError):
            return None
        # The SDK leaves `response` empty, or sets it to an object of whichever HTTP library it uses.
        headers = lower_case(error.response.headers) if hasattr(error.response, "headers") else {}
        body: Any = error.details
        message = server_message(error.response, body)
        refusal = read_refusal(error.code, body, headers, time.time(), message)
        return error_for(refusal, f"{error.code} {error.status}: {message}")


class _WithoutSearch:
    """Answers `name in model` at once with False, which is what pydantic returns after comparing every field.

    The SDK evaluates this before it reads each option of each call, which took a tenth of an item's CPU time.
    """

    def __contains__(self, name: object) -> bool:
        return False


class _Config(_WithoutSearch, types.GenerateContentConfig):
    """The options of one call."""

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "_Config":
        """A shallow copy. The SDK copies the options before it changes them, although nobody else uses them."""
        return self.__copy__()


class _Part(_WithoutSearch, types.Part):
    pass


def _contents(request: ModelRequest) -> list[types.ContentUnion]:
    """The turns; consecutive turns of one side become one content, as the API expects for tool results."""
    contents: list[tuple[str, list[types.Part]]] = []
    for turn in request.turns:
        role = "model" if turn.role == "assistant" else "user"
        if not contents or contents[-1][0] != role:
            contents.append((role, []))
        contents[-1][1].extend(_parts(turn))
    return [types.Content(role=role, parts=parts) for role, parts in contents if parts] or [
        types.Content(role="user", parts=[_Part(text=request.material)])
    ]


def _parts(turn: ChatTurn) -> list[types.Part]:
    if turn.role == "tool":
        response = types.FunctionResponse(name=turn.tool, response={"result": turn.text})
        return [_Part(function_response=response)]
    text = [_Part(text=turn.text)] if turn.text else []
    calls = [
        _Part(
            function_call=types.FunctionCall(name=call.name, args=json.loads(call.arguments)),
            thought_signature=base64.b64decode(call.signature) or None,
        )
        for call in turn.tool_calls
    ]
    return [*text, *calls]


def _set_tools(config: types.GenerateContentConfig, request: ModelRequest) -> None:
    functions = [
        types.FunctionDeclaration(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=json.loads(tool.parameters),
        )
        for tool in request.tools
    ]
    config.tools = [types.Tool(function_declarations=functions)]
    if request.tool_choice:
        mode = types.FunctionCallingConfigMode("NONE" if request.tool_choice == "none" else "ANY")
        names = None if request.tool_choice in ("any", "none") else [request.tool_choice]
        calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=names)
        config.tool_config = types.ToolConfig(function_calling_config=calling)


def _config(request: ModelRequest, key: LeasedKey) -> types.GenerateContentConfig:
    config = _Config(
        http_options=types.HttpOptions(headers={"x-goog-api-key": key.secret, **dict(key.headers)}),
        system_instruction=request.system or None,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        stop_sequences=list(request.stop) or None,
        # The SDK would call functions itself; there are none, but preparing for them takes time.
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    if request.tools:
        _set_tools(config, request)
    if request.effort.isdecimal():
        config.thinking_config = types.ThinkingConfig(thinking_budget=int(request.effort))
    elif request.effort:
        config.thinking_config = types.ThinkingConfig(
            thinking_level=types.ThinkingLevel(request.effort.upper())
        )
    if request.schema is not None:
        config.response_mime_type = "application/json"
        config.response_json_schema = json.loads(request.schema)
    return config


def _take(answer: PartialAnswer, chunk: types.GenerateContentResponse) -> None:
    answer.model = chunk.model_version or answer.model
    if counted := chunk.usage_metadata:
        # Thoughts are billed as output.
        output = positive_int(counted.candidates_token_count) + positive_int(counted.thoughts_token_count)
        answer.input_tokens = positive_int(counted.prompt_token_count) or answer.input_tokens
        answer.output_tokens = output or answer.output_tokens
        cached = positive_int(counted.cached_content_token_count)
        answer.cache_read_tokens = cached or answer.cache_read_tokens
    if chunk.prompt_feedback and (reason := chunk.prompt_feedback.block_reason):
        answer.end(f"blocked: {reason.value}", {f"blocked: {reason.value}": FinishReason.FILTERED})
    for candidate in (chunk.candidates or [])[:1]:
        for part in (candidate.content and candidate.content.parts) or []:
            if part.thought:
                answer.add_thought(part.text)
            else:
                answer.add_text(part.text)
            if part.function_call:
                _take_call(answer, part.function_call, part.thought_signature)
        answer.end(candidate.finish_reason and candidate.finish_reason.value, FINISHES)


def _take_call(answer: PartialAnswer, call: types.FunctionCall, signature: bytes | None) -> None:
    position = len(answer.tool_calls)
    answer.add_tool_call(position, call.name, json.dumps(call.args or {}), call.id)
    kept = base64.b64encode(signature or b"").decode()
    answer.tool_calls[position] = replace(answer.tool_calls[position], signature=kept)
