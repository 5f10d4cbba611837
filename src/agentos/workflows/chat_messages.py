"""Translates LangChain's messages and tools into a model request, and a model's response into LangChain's messages."""

import json
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from agentos.core.errors import ItemError
from agentos.core.protocol.ports import AnswerPiece, ChatTurn, ModelResponse, ToolCall, ToolSpec

SIGNATURES = "agentos_signatures"
TEXT_BLOCKS = ("text", "reasoning", "thinking", "tool_use", "tool_call")


def system_text(messages: list[BaseMessage]) -> str:
    return "\n\n".join(_text(message) for message in messages if isinstance(message, SystemMessage))


def chat_turns(messages: list[BaseMessage]) -> tuple[ChatTurn, ...]:
    """The conversation without its system messages."""
    turns: list[ChatTurn] = []
    names: dict[str, str] = {}  # of tools, by the id of their call
    for message in messages:
        match message:
            case SystemMessage():
                continue
            case AIMessage():
                calls = _calls(message)
                names |= {call.id: call.name for call in calls}
                turns.append(ChatTurn("assistant", _text(message), calls))
            case ToolMessage(tool_call_id=identifier):
                name = message.name or names.get(identifier, "")
                turns.append(ChatTurn("tool", _text(message), call_id=identifier, tool=name))
            case _:
                turns.append(ChatTurn("user", _text(message)))
    return tuple(turns) or (ChatTurn("user", ""),)


def tool_spec(tool: dict[str, Any]) -> ToolSpec:
    """A tool in the form that `convert_to_openai_tool` gives it."""
    function = tool.get("function")
    if not isinstance(function, dict):
        raise ItemError(
            f"agentos.model takes functions as tools, found a tool of type {tool.get('type')!r}",
            ("use your provider's own LangChain model for it: it finds the gateway of the run",),
        )
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(function["name"], function.get("description", ""), json.dumps(parameters))


def tool_choice_word(choice: object) -> str:
    """Translate LangChain's and the vendors' tool choices into ours."""
    match choice:
        case None | False | "" | "auto":
            return ""
        case True | "any" | "required":
            return "any"
        case {"function": {"name": str() as name}} | {"type": "tool", "name": str() as name}:
            return name
        case str() as name:
            return name
    raise ItemError(f"unknown tool_choice {choice!r}: expected auto, any, none or a tool's name")


def answer_message(response: ModelResponse) -> AIMessage:
    calls, invalid = [], []
    for call in response.tool_calls:
        arguments = parsed_arguments(call)
        if arguments is not None:
            calls.append({"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"})
        else:
            invalid.append(
                {
                    "name": call.name,
                    "args": call.arguments,
                    "id": call.id,
                    "error": "not a JSON object",
                    "type": "invalid_tool_call",
                }
            )
    return AIMessage(
        content=response.text, tool_calls=calls, invalid_tool_calls=invalid, **_about_answer(response)
    )


def piece_message(piece: AnswerPiece) -> AIMessageChunk:
    """A piece of an answer that is still arriving."""
    if piece.call is None:
        return AIMessageChunk(content=piece.text)
    return AIMessageChunk(content="", tool_call_chunks=[_call_chunk(piece.call, piece.position)])


def last_message(response: ModelResponse, *, is_out: bool) -> AIMessageChunk:
    """The last message of a streamed answer: the whole answer, unless its pieces have been passed on already."""
    chunks = [] if is_out else [_call_chunk(call, index) for index, call in enumerate(response.tool_calls)]
    return AIMessageChunk(
        content="" if is_out else response.text,
        tool_call_chunks=chunks,
        chunk_position="last",
        **_about_answer(response),
    )


def parsed_arguments(call: ToolCall) -> dict[str, Any] | None:
    """The call's arguments, or None if the model did not write them as a JSON object."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _call_chunk(call: ToolCall, index: int) -> Any:
    return tool_call_chunk(name=call.name or None, args=call.arguments, id=call.id or None, index=index)


def _about_answer(response: ModelResponse) -> dict[str, Any]:
    usage = response.usage
    signatures = {call.id: call.signature for call in response.tool_calls if call.signature}
    return {
        "additional_kwargs": {SIGNATURES: signatures} if signatures else {},
        "usage_metadata": UsageMetadata(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
            input_token_details=InputTokenDetails(
                cache_read=usage.cache_read_tokens, cache_creation=usage.cache_write_tokens
            ),
        ),
        "response_metadata": {
            "model_name": response.model,
            "finish_reason": response.finish_detail or str(response.finish),
        },
    }


def _calls(message: AIMessage) -> tuple[ToolCall, ...]:
    signatures = message.additional_kwargs.get(SIGNATURES, {})
    return tuple(
        ToolCall(
            call["id"] or "",
            call["name"],
            json.dumps(call["args"], ensure_ascii=False),
            signatures.get(call["id"], ""),
        )
        for call in message.tool_calls
    )


def _text(message: BaseMessage) -> str:
    """The message's text. Raises for an image or any other part that is not text, rather than dropping it."""
    for block in message.content if isinstance(message.content, list) else ():
        kind = "text" if isinstance(block, str) else str(block.get("type", ""))
        if kind not in TEXT_BLOCKS:
            raise ItemError(
                f"agentos.model takes text, and a message contains {kind or 'an unknown part'}",
                ("use your provider's own LangChain model for it: it finds the gateway of the run",),
            )
    return str(message.text)
