"""`agentos.model`: a LangChain chat model whose calls use the key pool of the run."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentos.core.errors import ItemError
from agentos.core.protocol.ports import ChatTurn, ModelRequest, ModelResponse, ToolCall, ToolSpec
from agentos.workflows.current_item import CurrentItem, current_item, current_task, result_of, wait_for

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.tools import BaseTool

SIGNATURES = "agentos_signatures"
TEXT_BLOCKS = ("text", "reasoning", "thinking", "tool_use", "tool_call")


class LeasedChatModel(BaseChatModel):
    """The model of a role of the settings, such as "drafter", for the nodes of any graph.

    Each call leases a key of the pool. Tokens and cost count for the item that makes the call, and for `--budget`. An
    answer is kept in the item's checkpoint before it is returned: a node that runs again after a crash gets the same
    answers to the same prompts, and only a call that had no answer yet is repeated. A streamed answer comes in one piece.

    Use it inside `agentos run`: elsewhere there is no pool, and a call raises an error.
    """

    role: str = "drafter"
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    """How much the model thinks: a word such as "low", or a number of tokens."""

    @property
    def _llm_type(self) -> str:
        return "agentos"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "effort": self.effort,
        }

    def bind_tools(
        self,
        tools: "Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool]",
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> "Runnable[LanguageModelInput, AIMessage]":
        """The same model with these tools. `tool_choice` is "auto", "any", "none" or a tool's name."""
        formatted = [convert_to_openai_tool(tool) for tool in tools]
        # Structured output passes what it is for; the schema is in the tool.
        kwargs.pop("ls_structured_output_format", None)
        return self.bind(tools=formatted, tool_choice=_tool_choice(tool_choice), **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        item, request = self._item(), self._request(messages, stop, kwargs)
        call = item.complete(current_task(), request)
        return _result(wait_for(item, call, "await model.ainvoke(...)"))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        item, request = self._item(), self._request(messages, stop, kwargs)
        return _result(await result_of(item, item.complete(current_task(), request)))

    def _item(self) -> CurrentItem:
        if (item := current_item()) is not None:
            return item
        raise ItemError(
            f'agentos.model("{self.role}") was called outside of a run: it leases keys from the run that it is part of',
            ("run the graph with: agentos run MODULE:WORKFLOW --all",),
        )

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> ModelRequest:
        system = [_text(message) for message in messages if isinstance(message, SystemMessage)]
        temperature = options.get("temperature", self.temperature)
        return ModelRequest(
            self.role,
            system="\n\n".join(system),
            turns=_turns(messages),
            max_output_tokens=options.get("max_tokens", self.max_tokens),
            effort=str(options.get("effort", self.effort)),
            tools=tuple(map(_tool_spec, options.get("tools") or ())),
            tool_choice=_tool_choice(options.get("tool_choice")),
            temperature=None if temperature is None else float(temperature),
            stop=tuple(stop or ()),
        )


def _turns(messages: list[BaseMessage]) -> tuple[ChatTurn, ...]:
    turns: list[ChatTurn] = []
    names: dict[str, str] = {}  # of the tools, by the id of the call
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
    """The message's text; raises for a picture or another part that is not text, rather than dropping it."""
    for block in message.content if isinstance(message.content, list) else ():
        kind = "text" if isinstance(block, str) else str(block.get("type", ""))
        if kind not in TEXT_BLOCKS:
            raise ItemError(
                f"agentos.model takes text, and a message contains {kind or 'an unknown part'}",
                ("use your provider's own LangChain model for it: it finds the gateway of the run",),
            )
    return str(message.text)


def _tool_spec(tool: dict[str, Any]) -> ToolSpec:
    function = tool["function"]
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(function["name"], function.get("description", ""), json.dumps(parameters))


def _tool_choice(choice: object) -> str:
    """LangChain's words for it, and those of the vendors, as ours."""
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


def _result(response: ModelResponse) -> ChatResult:
    calls, invalid = [], []
    for call in response.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = None
        if isinstance(arguments, dict):
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
    usage = response.usage
    signatures = {call.id: call.signature for call in response.tool_calls if call.signature}
    message = AIMessage(
        content=response.text,
        tool_calls=calls,
        invalid_tool_calls=invalid,
        additional_kwargs={SIGNATURES: signatures} if signatures else {},
        usage_metadata=UsageMetadata(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
            input_token_details=InputTokenDetails(
                cache_read=usage.cache_read_tokens, cache_creation=usage.cache_write_tokens
            ),
        ),
        response_metadata={
            "model_name": response.model,
            "finish_reason": response.finish_detail or str(response.finish),
        },
    )
    return ChatResult(generations=[ChatGeneration(message=message)])
