"""The server's responses as OpenAI's SDK reads them."""

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from agentos.offline.config import Hints, ServerConfig
from agentos.offline.faults import FaultKind
from agentos.offline.rate_limits import OfflineLimits
from agentos.offline.vendors.openai_errors import go_duration

from .asking import SCHEMA, completion, script, with_openai
from .serving import ISSUE, running

JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}

MANY = b'{"model": "m", "messages": [], "input": "", "max_tokens": "many", "max_output_tokens": "many"}'
GRADE = {"type": "object", "properties": {"grade": {"enum": ["good", "revise"]}}, "required": ["grade"]}
FUNCTION = {"name": "give_grade", "description": "Grade.", "parameters": GRADE}
NAMED = {"type": "function", "function": {"name": "give_grade"}}


class Verdict(BaseModel):
    verdict: str
    rationale: str


def test_a_response_has_text_usage_and_the_real_model_name() -> None:
    with running() as server:
        answer = with_openai(server, completion)
    choice = answer.choices[0]
    assert choice.message.content and choice.message.content.startswith("# Low-level design: Show rows")
    assert (answer.model, choice.finish_reason) == ("offline-rules-1", "stop")
    assert answer.usage and answer.usage.prompt_tokens == (len(ISSUE) + 3) // 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id and answer._request_id.startswith("req_")


def test_a_stream_adds_up_and_ends_with_the_usage_if_requested() -> None:
    async def ask(client: openai.AsyncOpenAI) -> list[Any]:
        stream = await client.chat.completions.create(
            model="m",
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": ISSUE}],
            stream=True,
            stream_options={"include_usage": True},
        )
        return [chunk async for chunk in stream]

    with running() as server:
        chunks = with_openai(server, ask)
        whole = with_openai(server, completion)
    *told, last = chunks
    assert len(told) > 3
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in told] == [None] * (len(told) - 1) + ["stop"]
    assert whole.usage and last.usage.completion_tokens == whole.usage.completion_tokens
    assert last.choices == []


def test_a_stream_reports_no_usage_unless_requested() -> None:
    async def ask(client: openai.AsyncOpenAI) -> list[Any]:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": ISSUE}], stream=True
        )
        return [chunk async for chunk in stream]

    with running() as server:
        chunks = with_openai(server, ask)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("form", [JSON_SCHEMA, {"type": "json_object"}])
def test_a_json_format_makes_it_a_review(form: dict[str, Any]) -> None:
    with running() as server:
        answer = with_openai(server, lambda client: completion(client, response_format=form))
        assert [call["role"] for call in server.ledger()["calls"]] == ["review"]
    assert json.loads(answer.choices[0].message.content or "")["verdict"] == "REVISE"


def test_the_sdk_parses_the_response_into_a_type() -> None:
    async def ask(client: openai.AsyncOpenAI) -> tuple[Verdict | None, Verdict | None]:
        chat = await client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": ISSUE}], response_format=Verdict
        )
        response = await client.responses.parse(model="m", input=ISSUE, text_format=Verdict)
        return chat.choices[0].message.parsed, response.output_parsed

    with running() as server:
        for verdict in with_openai(server, ask):
            assert verdict and verdict.verdict == "REVISE"


def test_models_are_listed() -> None:
    async def ask(client: openai.AsyncOpenAI) -> list[str]:
        return [model.id async for model in client.models.list()]

    with running() as server:
        assert with_openai(server, ask) == ["offline-rules-1"]


def test_an_answer_can_be_cut_or_blocked() -> None:
    with running() as server:
        cut = with_openai(server, lambda client: completion(client, max_completion_tokens=10))
        script(server, FaultKind.SAFETY)
        filtered = with_openai(server, completion)
        script(server, FaultKind.BLOCKED)
        blocked = with_openai(server, completion)
    assert (cut.choices[0].finish_reason, len(cut.choices[0].message.content or "")) == ("length", 40)
    assert filtered.choices[0].finish_reason == "content_filter"
    assert blocked.choices[0].message.refusal


def test_the_responses_api_works_whole_and_streamed() -> None:
    async def ask(client: openai.AsyncOpenAI) -> tuple[Any, list[Any]]:
        whole = await client.responses.create(model="m", input=ISSUE, instructions="Be brief.")
        stream = await client.responses.create(
            model="m", input=[{"role": "user", "content": ISSUE}], stream=True
        )
        return whole, [event async for event in stream]

    with running() as server:
        whole, events = with_openai(server, ask)
    assert whole.output_text.startswith("# Low-level design") and whole.status == "completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


REFUSALS = {
    FaultKind.MINUTE_QUOTA: (openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
    FaultKind.DAY_QUOTA: (openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
    FaultKind.BOTH_QUOTAS: (openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
    FaultKind.INPUT_QUOTA: (openai.RateLimitError, 429, "tokens", "rate_limit_exceeded"),
    FaultKind.BARE_QUOTA: (openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
    FaultKind.RETRY_AFTER: (openai.RateLimitError, 429, "requests", "rate_limit_exceeded"),
    FaultKind.RAMP: (openai.RateLimitError, 429, "rate_limit_error", "slow_down"),
    FaultKind.SPEND_LIMIT: (openai.RateLimitError, 429, "insufficient_quota", "project_spend_limit_exceeded"),
    FaultKind.OWN_SPEND_LIMIT: (
        openai.RateLimitError,
        429,
        "insufficient_quota",
        "organization_usage_limit_exceeded",
    ),
    FaultKind.NO_CREDIT: (openai.RateLimitError, 429, "insufficient_quota", "credit_balance_exhausted"),
    FaultKind.INSUFFICIENT_QUOTA: (openai.RateLimitError, 429, "insufficient_quota", "insufficient_quota"),
    FaultKind.KEY_INVALID: (openai.AuthenticationError, 401, "invalid_request_error", "invalid_api_key"),
    FaultKind.BAD_REQUEST: (openai.BadRequestError, 400, "invalid_request_error", None),
    FaultKind.UNAUTHENTICATED: (openai.AuthenticationError, 401, "invalid_request_error", "invalid_api_key"),
    FaultKind.UNPAID: (openai.APIStatusError, 402, "billing_error", "billing_not_active"),
    FaultKind.FORBIDDEN: (openai.PermissionDeniedError, 403, "invalid_request_error", "model_not_available"),
    FaultKind.NOT_FOUND: (openai.NotFoundError, 404, "invalid_request_error", "model_not_found"),
    FaultKind.INTERNAL: (openai.InternalServerError, 500, "server_error", None),
    FaultKind.BAD_GATEWAY: (openai.InternalServerError, 502, "server_error", None),
    FaultKind.UNAVAILABLE: (
        openai.InternalServerError,
        503,
        "service_unavailable_error",
        "server_is_overloaded",
    ),
    FaultKind.TIMEOUT: (openai.InternalServerError, 504, "server_error", None),
    FaultKind.OVERLOADED: (
        openai.InternalServerError,
        503,
        "service_unavailable_error",
        "server_is_overloaded",
    ),
    FaultKind.OVERLOADED_STREAM: (
        openai.InternalServerError,
        503,
        "service_unavailable_error",
        "server_is_overloaded",
    ),
}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_forced_tool_is_used(choice: Any) -> None:
    tools: Any = [{"type": "function", "function": FUNCTION}]

    async def stream(client: openai.AsyncOpenAI) -> Any:
        messages: Any = [{"role": "user", "content": ISSUE}]
        async with client.chat.completions.stream(
            model="m", messages=messages, tools=tools, tool_choice=choice
        ) as told:
            return await told.get_final_completion()

    with running() as server:
        whole: Any = with_openai(server, lambda client: completion(client, tools=tools, tool_choice=choice))
        streamed = with_openai(server, stream)
    for answer in (whole, streamed):
        (call,) = answer.choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("give_grade", {"grade": "good"})
        assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "give_grade"}])
def test_a_forced_tool_is_used_in_a_response(choice: Any) -> None:
    asked: dict[str, Any] = {
        "model": "m",
        "input": ISSUE,
        "tools": [{"type": "function", "strict": False, **FUNCTION}],
        "tool_choice": choice,
    }

    async def ask(client: openai.AsyncOpenAI) -> list[Any]:
        async with client.responses.stream(**asked) as told:
            streamed = await told.get_final_response()
        return [await client.responses.create(**asked), streamed]

    with running() as server:
        for answer in with_openai(server, ask):
            (call,) = answer.output
            assert (call.name, json.loads(call.arguments)) == ("give_grade", {"grade": "good"})


def test_a_json_schema_that_is_no_reviews_is_followed() -> None:
    answer_format = {"type": "json_schema", "json_schema": {"name": "grade", "schema": GRADE}}
    with running() as server:
        answer = with_openai(server, lambda client: completion(client, response_format=answer_format))
    assert json.loads(answer.choices[0].message.content or "") == {"grade": "good"}


def test_each_refusal_raises_the_matching_sdk_exception() -> None:
    async def meet(client: openai.AsyncOpenAI) -> dict[FaultKind, tuple[object, ...]]:
        found: dict[FaultKind, tuple[object, ...]] = {}
        for kind in REFUSALS:
            script(server, kind)
            with pytest.raises(openai.APIStatusError) as refused:
                await completion(client)
            error = refused.value
            found[kind] = (type(error), error.status_code, error.type, error.code)
        return found

    with running() as server:
        assert with_openai(server, meet) == REFUSALS


async def refused_by(client: openai.AsyncOpenAI) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refused:
        await completion(client)
    return refused.value


def test_a_refusal_can_have_any_code_and_hint() -> None:
    with running() as server:
        script(server, FaultKind.SPEND_LIMIT, code="organization_spend_limit_exceeded")
        spent = with_openai(server, refused_by)
        script(server, FaultKind.MINUTE_QUOTA, retry_delay=1.2345)
        hinted = with_openai(server, refused_by)
    assert spent.code == "organization_spend_limit_exceeded"
    assert "retry-after" not in spent.response.headers
    assert hinted.response.headers["retry-after"] == "2"
    assert hinted.response.headers["retry-after-ms"] == "1235"


def test_an_overload_error_can_come_in_the_middle_of_a_stream() -> None:
    heard: list[str] = []

    async def listen(client: openai.AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": ISSUE}], stream=True
        )
        async for chunk in stream:
            heard.append(chunk.choices[0].delta.content or "")  # noqa: PERF401 - also before the error

    with running() as server:
        script(server, FaultKind.OVERLOADED_STREAM)
        with pytest.raises(openai.APIError) as refused:
            with_openai(server, listen)
    assert "".join(heard).startswith("# Low-level design")
    assert refused.value.code == "server_is_overloaded"


def test_an_unknown_key_is_refused() -> None:
    with running() as server:
        error = with_openai(server, refused_by, secret="a-stranger")
    assert (error.status_code, error.code) == (401, "invalid_api_key")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"model": "m", "messages": 3, "input": 3}', MANY])
def test_a_malformed_request_is_a_bad_request(path: str, body: bytes) -> None:
    with running() as server:
        assert server.refused("POST", path, body) == 400


def test_every_response_reports_the_remaining_limits() -> None:
    async def ask(client: openai.AsyncOpenAI) -> tuple[dict[str, str], openai.APIStatusError]:
        raw = await client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": ISSUE}], max_completion_tokens=900
        )
        return dict(raw.headers), await refused_by(client)

    with running(ServerConfig(limits=OfflineLimits(rate=1, tokens=1000, per_day=50))) as server:
        good, error = with_openai(server, ask)
    given = (len(ISSUE) + 3) // 4
    assert good["x-ratelimit-limit-requests"] == "1"
    assert good["x-ratelimit-remaining-requests"] == "0"
    assert good["x-ratelimit-remaining-tokens"] == str(1000 - 900 - given)
    assert good["x-ratelimit-reset-requests"] == "1m0s" or good["x-ratelimit-reset-requests"].startswith(
        "59."
    )
    assert 50_000 < int(error.response.headers["retry-after-ms"]) <= 60_000
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert "requests per min (RPM): 1." in error.message


def test_reserved_tokens_count_before_they_are_written() -> None:
    async def ask(client: openai.AsyncOpenAI) -> tuple[str | None, str | None]:
        with pytest.raises(openai.RateLimitError) as refused:
            await completion(client, max_tokens=1001)
        return refused.value.type, (await completion(client)).choices[0].message.content

    with running(ServerConfig(limits=OfflineLimits(tokens=1000))) as server:
        kind, text = with_openai(server, ask)
    assert kind == "tokens" and text


def test_without_hints_a_refusal_explains_nothing() -> None:
    async def ask(client: openai.AsyncOpenAI) -> openai.APIStatusError:
        await completion(client)
        return await refused_by(client)

    with running(ServerConfig(limits=OfflineLimits(rate=1), hints=Hints.NONE)) as server:
        error = with_openai(server, ask)
    assert not [name for name in error.response.headers if "ratelimit" in name or "retry" in name]
    assert (error.code, error.status_code) == ("rate_limit_exceeded", 429)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "0ms"), (0.012, "12ms"), (1, "1s"), (1.5, "1.5s"), (360, "6m0s"), (3661.25, "1h1m1.25s")],
)
def test_durations_are_in_go_notation(seconds: float, written: str) -> None:
    assert go_duration(seconds) == written
