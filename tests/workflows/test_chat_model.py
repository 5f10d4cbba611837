"""agentos.model as a LangChain chat model: what it sends, what it returns, and from where it may be called."""

import asyncio
import functools
import json
import operator
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

import agentos
from agentos.core.errors import ItemError
from agentos.core.protocol.ports import AnswerPiece, ModelRequest, ModelResponse, OnPiece, ToolCall
from agentos.core.protocol.results import Usage
from agentos.workflows.current_item import Complete, Correct, CurrentItem, entered


class Recorder:
    """An item whose model gives the same answer to every call."""

    def __init__(self, text: str = "white", *calls: ToolCall) -> None:
        self.requests: list[ModelRequest] = []
        self._response = ModelResponse(text, "m-1", Usage(1, 7, 3, cache_read_tokens=5), tool_calls=calls)

    async def complete(
        self,
        task: str,
        request: ModelRequest,
        on_piece: OnPiece | None = None,
        correct: Correct | None = None,
    ) -> ModelResponse:
        self.requests.append(request)
        return self._response

    def run(self, node: Callable[[], Any]) -> Any:
        return run_node(self.complete, node)


def run_node(complete: Complete, node: Callable[[], Any]) -> Any:
    """Run a synchronous node as LangGraph does: in a thread of its own, with the context of the item."""

    async def run() -> Any:
        with entered(CurrentItem("T-1", asyncio.get_running_loop(), complete)):
            return await asyncio.to_thread(node)

    return asyncio.run(run())


MODEL = agentos.model("planner", temperature=0.2)


def test_an_answer_has_text_usage_and_the_models_name() -> None:
    answer = Recorder().run(lambda: MODEL.invoke("Snow?"))
    assert answer.content == "white" and answer.response_metadata["model_name"] == "m-1"
    counted = {
        name: answer.usage_metadata[name] for name in ("input_tokens", "output_tokens", "total_tokens")
    }
    assert counted == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert answer.usage_metadata["input_token_details"]["cache_read"] == 5


def test_tokens_are_estimated_without_a_tokenizer_of_some_vendor() -> None:
    assert MODEL.get_num_tokens("x" * 40) == 10
    messages = [HumanMessage("old " * 40), AIMessage("yes"), HumanMessage("new")]
    assert trim_messages(messages, max_tokens=30, token_counter=MODEL, start_on="human") == messages[2:]
    tool = convert_to_openai_tool(Verdict)
    plain = MODEL.get_num_tokens_from_messages(messages)
    assert MODEL.get_num_tokens_from_messages(messages, [tool]) > plain > 40


def test_a_conversation_becomes_one_request_with_instructions_turns_and_options() -> None:
    item = Recorder()
    call = {"name": "search", "args": {"q": "snow"}, "id": "c1", "type": "tool_call"}
    messages = [
        SystemMessage("rules"),
        HumanMessage([{"type": "text", "text": "When?"}]),
        AIMessage("", tool_calls=[call]),
        ToolMessage("in May", tool_call_id="c1"),
    ]
    item.run(lambda: MODEL.invoke(messages, stop=["END"], max_tokens=9))
    [request] = item.requests
    assert (request.role, request.system, request.stop) == ("planner", "rules", ("END",))
    assert (request.temperature, request.max_output_tokens) == (0.2, 9)
    assert [turn.role for turn in request.turns] == ["user", "assistant", "tool"]
    assert request.turns[1].tool_calls == (ToolCall("c1", "search", '{"q": "snow"}'),)
    assert request.turns[2].tool == "search"


def test_tools_are_bound_and_their_calls_returned_with_what_the_vendor_wants_back() -> None:
    def search(q: str) -> str:
        """Searches."""
        return q

    item = Recorder("", ToolCall("c1", "search", '{"q": "snow"}', "sig"), ToolCall("c2", "search", "{"))
    answer = item.run(lambda: MODEL.bind_tools([search], tool_choice="any").invoke("x"))
    [tool] = item.requests[0].tools
    assert tool.name == "search" and item.requests[0].tool_choice == "any"
    assert answer.tool_calls[0]["args"] == {"q": "snow"}
    assert [call["name"] for call in answer.invalid_tool_calls] == ["search"]
    item.run(lambda: MODEL.invoke([HumanMessage("x"), answer]))
    assert item.requests[1].turns[1].tool_calls[0].signature == "sig"


def test_structured_output_is_an_object_of_the_schema() -> None:
    class Verdict(BaseModel):
        good: bool

    item = Recorder("", ToolCall("c1", "Verdict", '{"good": true}'))
    assert item.run(lambda: MODEL.with_structured_output(Verdict).invoke("x")) == Verdict(good=True)


def test_stream_batch_threads_and_event_loops_of_a_nodes_own_reach_the_item() -> None:
    item = Recorder()

    def in_thread() -> list[str]:
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(str(MODEL.invoke("x").content)))
        thread.start()
        thread.join(30)
        return found

    assert item.run(lambda: [chunk.content for chunk in MODEL.stream("x") if chunk.content]) == ["white"]
    assert item.run(lambda: [each.content for each in MODEL.batch(["a", "b"])]) == ["white", "white"]
    assert item.run(in_thread) == ["white"]
    assert item.run(lambda: asyncio.run(MODEL.ainvoke("x")).content) == "white"


def test_a_synchronous_call_in_an_async_node_is_an_error_at_once() -> None:
    async def node() -> None:
        with entered(CurrentItem("T-1", asyncio.get_running_loop(), Recorder().complete)):
            MODEL.invoke("x")

    with pytest.raises(ItemError, match=r"write await model\.ainvoke"):
        asyncio.run(node())


def test_outside_of_a_run_the_error_says_how_to_start_one() -> None:
    with pytest.raises(ItemError, match="outside of a run") as caught:
        MODEL.invoke("x")
    assert "agentos run" in caught.value.details[0]


def test_a_picture_is_refused_rather_than_left_out() -> None:
    picture = HumanMessage([{"type": "image_url", "image_url": {"url": "data:..."}}])
    with pytest.raises(ItemError, match="takes text"):
        Recorder().run(lambda: MODEL.invoke([picture]))


class Verdict(BaseModel):
    good: bool


class Answers:
    """An item whose model gives these answers in turn; `better` are the requests for a better answer."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = list(arguments)
        self.better: list[ModelRequest] = []

    async def complete(
        self,
        task: str,
        request: ModelRequest,
        on_piece: OnPiece | None = None,
        correct: Correct | None = None,
    ) -> ModelResponse:
        answer = ModelResponse(
            "", "m-1", Usage(1, 7, 3), tool_calls=(ToolCall("c1", "Verdict", self._arguments.pop(0)),)
        )
        better = correct(answer) if correct else None
        if better is None or not self._arguments:
            return answer
        self.better.append(better)
        return await self.complete(task, better, on_piece, correct)

    def run(self, node: Callable[[], Any]) -> Any:
        return run_node(self.complete, node)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"good": "perhaps"}', "good: Input should be a valid boolean"),
        ("{}", "good: Field required"),
        ('{"good": tr', "its arguments are not a JSON object"),
    ],
)
def test_an_answer_that_breaks_the_schema_is_asked_for_once_more(bad: str, problem: str) -> None:
    item = Answers(bad, '{"good": true}')
    assert item.run(lambda: MODEL.with_structured_output(Verdict).invoke("x")) == Verdict(good=True)
    *_, answer, result = item.better[0].turns
    assert (answer.role, result.role) == ("assistant", "tool") and problem in result.text
    assert json.loads(answer.tool_calls[0].arguments) is not None


def test_a_schema_without_a_model_is_checked_too_and_the_second_answer_is_the_parsers() -> None:
    schema = {
        "title": "Verdict",
        "description": "A verdict.",
        "type": "object",
        "properties": {"good": {"type": "boolean"}},
        "required": ["good"],
    }
    item = Answers('{"good": 7}', '{"good": false}')
    assert item.run(lambda: MODEL.with_structured_output(schema).invoke("x")) == {"good": False}
    assert "good: expected boolean, found integer" in item.better[0].turns[-1].text
    with pytest.raises(ValueError, match="good"):
        Answers("{}", "{}").run(lambda: MODEL.with_structured_output(Verdict).invoke("x"))


def test_with_raw_answers_nothing_is_asked_again() -> None:
    item = Answers("{}", '{"good": true}')
    found = item.run(lambda: MODEL.with_structured_output(Verdict, include_raw=True).invoke("x"))
    assert found["parsed"] is None and found["parsing_error"] and not item.better


def test_an_unknown_option_is_an_error_that_names_the_known_ones() -> None:
    expected = (
        r"unknown option 'temprature': expected temperature, max_tokens, effort; did you mean temperature\?"
    )
    with pytest.raises(TypeError, match=expected):
        agentos.model("drafter", temprature=1)
    with pytest.raises(TypeError, match="got temperature='hot': input should be a valid number"):
        agentos.model("drafter", temperature="hot")
    with pytest.raises(
        TypeError, match="unknown option 'top_p': expected temperature, max_tokens, effort, t"
    ):
        Recorder().run(lambda: MODEL.bind(top_p=1).invoke("x"))
    with pytest.raises(TypeError, match="unknown option 'parallel_tool_calls'"):
        MODEL.bind_tools([Verdict], parallel_tool_calls=False)
    with pytest.raises(TypeError, match="effort='hgih': expected minimal, low"):
        Recorder().run(lambda: agentos.model("drafter", effort="hgih").invoke("x"))
    assert agentos.model("drafter", tags=["mine"]).tags == ["mine"]
    with pytest.raises(ItemError, match="functions as tools, found a tool of type 'web_search'"):
        Recorder().run(lambda: MODEL.bind(tools=[{"type": "web_search"}]).invoke("x"))


def test_pieces_of_a_stream_make_up_the_message_that_invoke_returns() -> None:
    call = ToolCall("c1", "search", '{"q": "snow"}', "sig")
    response = ModelResponse("white", "m-1", Usage(1, 7, 3), tool_calls=(call,))
    pieces = (
        AnswerPiece("wh"),
        AnswerPiece("ite"),
        AnswerPiece(call=ToolCall("c1", "search", '{"q"'), position=1),
        AnswerPiece(call=ToolCall("", "", ': "snow"}'), position=1),
    )

    async def complete(
        task: str, request: ModelRequest, on_piece: OnPiece | None = None, correct: Correct | None = None
    ) -> ModelResponse:
        for piece in pieces:
            if on_piece:
                on_piece(piece)
        return response

    def merged(node: Callable[[], list[Any]]) -> Any:
        return functools.reduce(operator.add, run_node(complete, node))

    async def all_of() -> list[Any]:
        return [chunk async for chunk in MODEL.astream("x")]

    whole = merged(lambda: [MODEL.invoke("x")])
    for streamed in (
        merged(lambda: list(MODEL.stream("x"))),
        merged(lambda: asyncio.run(all_of())),
    ):
        assert streamed.content == whole.content == "white"
        assert streamed.tool_calls == whole.tool_calls and streamed.usage_metadata == whole.usage_metadata
        assert streamed.additional_kwargs == whole.additional_kwargs
        assert streamed.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]
