"""`agentos.model`: a LangChain chat model whose calls use the key pool of the run."""

import difflib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, ValidationError

from agentos.codebase.rendering import estimated_tokens
from agentos.config.file import EFFORTS
from agentos.core.errors import ItemError
from agentos.core.protocol.ports import AnswerPiece, ModelRequest, ModelResponse
from agentos.workflows.answer_schema import AnswerSchema
from agentos.workflows.answer_stream import astream_from, stream_from
from agentos.workflows.chat_messages import (
    answer_message,
    chat_turns,
    last_message,
    piece_message,
    system_text,
    tool_choice_word,
    tool_spec,
)
from agentos.workflows.current_item import (
    Correct,
    CurrentItem,
    current_item,
    current_task,
    result_of,
    wait_for,
)

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.tools import BaseTool
    from pydantic import BaseModel

OPTIONS = ("temperature", "max_tokens", "effort")
CALL_OPTIONS = (*OPTIONS, "tools", "tool_choice", "stop")
_SCHEMA = "answer_schema"  # the option in which `with_structured_output` passes the schema to check


class LeasedChatModel(BaseChatModel):
    """The model of a role of the settings, such as "drafter", for the nodes of any graph.

    Each call leases a key of the pool. Tokens and cost count for the item that makes the call, and for `--budget`. An
    answer is kept in the item's checkpoint before it is returned: a node that runs again after a crash gets the same
    answers to the same prompts, and only a call that had no answer yet is repeated. A streamed answer arrives in
    pieces, as the provider sends them; if it is cut, the stream raises an error.

    Use it inside `agentos run`: elsewhere there is no pool, and a call raises an error.
    """

    role: str = "drafter"
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    """How much the model thinks: a word such as "low", or a number of tokens."""

    _checks_answers: bool = PrivateAttr(default=False)

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

    def get_num_tokens(self, text: str) -> int:
        """An estimate: the role's models may come from several vendors, and a call has no key yet."""
        return estimated_tokens(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Estimate the tokens of the messages; `trim_messages` calls this, too."""
        specs = [json.dumps(convert_to_openai_tool(tool)) for tool in tools or ()]
        return count_tokens_approximately(messages) + sum(map(estimated_tokens, specs))

    def bind_tools(
        self,
        tools: "Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool]",
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> "Runnable[LanguageModelInput, AIMessage]":
        """The same model with these tools. `tool_choice` is "auto", "any", "none" or a tool's name."""
        # Passed by structured output; LangChain needs it for tracing only.
        kwargs.pop("ls_structured_output_format", None)
        _check_options(kwargs, CALL_OPTIONS)
        formatted = [convert_to_openai_tool(tool) for tool in tools]
        schema = {_SCHEMA: AnswerSchema.of(tools[0])} if self._checks_answers else {}
        return self.bind(tools=formatted, tool_choice=tool_choice_word(tool_choice), **schema, **kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> "Runnable[LanguageModelInput, dict[str, Any] | BaseModel]":
        """The same model with answers of this schema.

        If an answer violates it, the model is asked once more. If that does not help, the parser's error is raised and
        neither answer is kept, so that another attempt asks again. With `include_raw` every answer is returned.
        """
        model = self.model_copy()
        model._checks_answers = not include_raw
        return super(LeasedChatModel, model).with_structured_output(schema, include_raw=include_raw, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        item, request = self._item(), self._request(messages, stop, kwargs)
        call = item.complete(current_task(), request, None, _correct(request, kwargs))
        return _result(wait_for(item, call, "await model.ainvoke(...)"))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        item, request = self._item(), self._request(messages, stop, kwargs)
        call = item.complete(current_task(), request, None, _correct(request, kwargs))
        return _result(await result_of(item, call))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        item, request = self._item(), self._request(messages, stop, kwargs)
        begin = partial(item.complete, current_task(), request, correct=_correct(request, kwargs))
        is_out = False
        for piece in stream_from(item, begin, "async for chunk in model.astream(...)"):
            yield _chunk(piece, is_out=is_out)
            is_out = True

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        item, request = self._item(), self._request(messages, stop, kwargs)
        begin = partial(item.complete, current_task(), request, correct=_correct(request, kwargs))
        is_out = False
        async for piece in astream_from(item, begin):
            yield _chunk(piece, is_out=is_out)
            is_out = True

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
        _check_options(options, (*CALL_OPTIONS, _SCHEMA, "stream"))
        temperature = options.get("temperature", self.temperature)
        effort = str(options.get("effort", self.effort) or "")
        if effort and not effort.isdecimal() and effort not in EFFORTS:
            raise TypeError(
                f"agentos.model got effort={effort!r}: expected {', '.join(EFFORTS)}, or a number of tokens"
            )
        return ModelRequest(
            self.role,
            system=system_text(messages),
            turns=chat_turns(messages),
            max_output_tokens=options.get("max_tokens", self.max_tokens),
            effort=effort,
            tools=tuple(map(tool_spec, options.get("tools") or ())),
            tool_choice=tool_choice_word(options.get("tool_choice")),
            temperature=None if temperature is None else float(temperature),
            stop=tuple(stop or ()),
        )


def leased_chat_model(role: str, options: Mapping[str, Any]) -> LeasedChatModel:
    """The model of a role. Raises TypeError for an unknown option or a value of the wrong type."""
    of_langchain = BaseChatModel.model_fields
    _check_options({name: value for name, value in options.items() if name not in of_langchain}, OPTIONS)
    try:
        return LeasedChatModel(role=role, **options)
    except ValidationError as error:
        found = error.errors()[0]
        name = ".".join(map(str, found["loc"]))
        raise TypeError(f"agentos.model got {name}={found['input']!r}: {found['msg'].lower()}") from error


def _check_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [name for name, value in options.items() if name not in known and value is not None]
    if not unknown:
        return
    accepted = [name for name in known if name in CALL_OPTIONS]
    near = difflib.get_close_matches(unknown[0], accepted, 1, cutoff=0.75)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise TypeError(
        f"agentos.model got an unknown option {unknown[0]!r}: expected {', '.join(accepted)}{meant}"
    )


def _correct(request: ModelRequest, options: Mapping[str, Any]) -> Correct | None:
    schema = options.get(_SCHEMA)
    return partial(schema.better_request, request) if isinstance(schema, AnswerSchema) else None


def _result(response: ModelResponse) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=answer_message(response))])


def _chunk(piece: AnswerPiece | ModelResponse, *, is_out: bool) -> ChatGenerationChunk:
    message: AIMessageChunk = (
        piece_message(piece) if isinstance(piece, AnswerPiece) else last_message(piece, is_out=is_out)
    )
    return ChatGenerationChunk(message=message)
