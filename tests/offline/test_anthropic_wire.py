"""The server's responses as Anthropic's SDK reads them."""

import asyncio
import json
from datetime import datetime
from typing import Any

import anthropic
import pytest
from anthropic.types.shared.enforced_spend_limit_reached_error import EnforcedSpendLimitReachedError
from anthropic.types.shared.ramp_limit_exceeded_error import RampLimitExceededError
from pydantic import BaseModel

from agentos.offline.config import Hints, ServerConfig
from agentos.offline.faults import FaultKind
from agentos.offline.rate_limits import OfflineLimits

from .asking import SCHEMA, message, script, with_anthropic
from .serving import ISSUE, KEYS, running

RATE = "anthropic-ratelimit"


class Verdict(BaseModel):
    verdict: str
    rationale: str


def test_a_response_has_text_usage_and_the_real_model_name() -> None:
    with running() as server:
        answer = with_anthropic(server, lambda client: message(client, system="Be brief."))
    block = answer.content[0]
    assert block.type == "text" and block.text.startswith("# Low-level design: Show rows")
    assert (answer.model, answer.stop_reason) == ("offline-rules-1", "end_turn")
    assert answer.usage.input_tokens == (len(ISSUE + "Be brief.") + 3) // 4
    assert answer.usage.output_tokens == (len(block.text) + 3) // 4
    assert answer._request_id and answer._request_id.startswith("req_")


def test_a_stream_has_anthropics_events_and_adds_up() -> None:
    async def both(client: anthropic.AsyncAnthropic) -> tuple[list[str], anthropic.types.Message]:
        stream = await client.messages.create(
            model="m", max_tokens=4000, messages=[{"role": "user", "content": ISSUE}], stream=True
        )
        kinds: list[str] = [event.type async for event in stream]
        async with client.messages.stream(
            model="m", max_tokens=4000, messages=[{"role": "user", "content": ISSUE}]
        ) as told:
            return kinds, await told.get_final_message()

    with running() as server:
        kinds, final = with_anthropic(server, both)
        whole = with_anthropic(server, message)
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"} and len(kinds) > 6
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert final.content[0].type == whole.content[0].type == "text"
    assert final.content[0].text == whole.content[0].text
    assert (final.usage, final.stop_reason) == (whole.usage, whole.stop_reason)


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_a_schema_makes_it_a_review(more: dict[str, bool]) -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> str:
        asked: dict[str, Any] = {
            "model": "m",
            "max_tokens": 4000,
            "messages": [{"role": "user", "content": [{"type": "text", "text": ISSUE}]}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        }
        if more:
            async with client.messages.stream(**asked) as told:
                return await told.get_final_text()
        answer = await client.messages.create(**asked)
        return str(answer.content[0].text)

    with running() as server:
        verdict = json.loads(with_anthropic(server, ask))
        assert [call["role"] for call in server.ledger()["calls"]] == ["review"]
    assert verdict["verdict"] == "REVISE"


def test_the_sdk_parses_the_response_into_a_type() -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> Verdict | None:
        answer = await client.messages.parse(
            model="m",
            max_tokens=4000,
            messages=[{"role": "user", "content": ISSUE}],
            output_format=Verdict,
        )
        return answer.parsed_output

    with running() as server:
        verdict = with_anthropic(server, ask)
    assert verdict and verdict.verdict == "REVISE"


def test_a_forced_tool_is_used() -> None:
    tools = [{"name": "give_verdict", "description": "Judge.", "input_schema": SCHEMA}]
    choice = {"type": "tool", "name": "give_verdict"}

    async def stream(client: anthropic.AsyncAnthropic) -> anthropic.types.Message:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 4000, "tools": tools, "tool_choice": choice}
        async with client.messages.stream(messages=[{"role": "user", "content": ISSUE}], **asked) as told:
            return await told.get_final_message()

    with running() as server:
        whole = with_anthropic(server, lambda client: message(client, tools=tools, tool_choice=choice))
        streamed = with_anthropic(server, stream)
    for answer in (whole, streamed):
        (block,) = answer.content
        assert block.type == "tool_use" and block.name == "give_verdict"
        assert block.input["verdict"] == "REVISE"
        assert answer.stop_reason == "tool_use"


def test_the_arguments_of_a_forced_tool_follow_its_schema() -> None:
    grade = {"type": "object", "properties": {"grade": {"enum": ["good"]}}, "required": ["grade"]}
    tools = [{"name": "give_grade", "description": "Grade.", "input_schema": grade}]
    with running() as server:
        answer = with_anthropic(
            server, lambda client: message(client, tools=tools, tool_choice={"type": "any"})
        )
    (block,) = answer.content
    assert block.type == "tool_use" and block.input == {"grade": "good"}


def test_tokens_are_counted_and_models_are_listed() -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> tuple[int, list[str]]:
        counted = await client.messages.count_tokens(
            model="m", messages=[{"role": "user", "content": "12345678"}]
        )
        return counted.input_tokens, [model.id async for model in client.models.list()]

    with running() as server:
        assert with_anthropic(server, ask) == (2, ["offline-rules-1"])


def test_an_answer_can_be_cut_or_blocked() -> None:
    with running() as server:
        cut = with_anthropic(server, lambda client: message(client, max_tokens=10))
        script(server, FaultKind.SAFETY)
        refused = with_anthropic(server, message)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 10)
    assert (refused.stop_reason, refused.content) == ("refusal", [])


def test_a_bearer_token_is_accepted_as_a_key() -> None:
    async def ask() -> anthropic.types.Message:
        async with anthropic.AsyncAnthropic(
            auth_token=KEYS[1].secret, base_url=server.url, max_retries=0
        ) as client:
            return await message(client)

    with running() as server:
        assert asyncio.run(ask()).content
        assert server.ledger()["calls"][0]["key"] == "key-2"


REFUSALS = {
    FaultKind.MINUTE_QUOTA: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.DAY_QUOTA: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.BOTH_QUOTAS: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.INPUT_QUOTA: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.BARE_QUOTA: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.RETRY_AFTER: (anthropic.RateLimitError, 429, "rate_limit_error", None),
    FaultKind.RAMP: (RampLimitExceededError, 429, "rate_limit_error", "ramp_limit_exceeded"),
    FaultKind.SPEND_LIMIT: (
        EnforcedSpendLimitReachedError,
        429,
        "rate_limit_error",
        "enforced_spend_limit_reached",
    ),
    FaultKind.OWN_SPEND_LIMIT: (anthropic.BadRequestError, 400, "invalid_request_error", None),
    FaultKind.NO_CREDIT: (anthropic.APIStatusError, 402, "billing_error", None),
    FaultKind.INSUFFICIENT_QUOTA: (anthropic.APIStatusError, 402, "billing_error", None),
    FaultKind.KEY_INVALID: (anthropic.AuthenticationError, 401, "authentication_error", None),
    FaultKind.BAD_REQUEST: (anthropic.BadRequestError, 400, "invalid_request_error", None),
    FaultKind.UNAUTHENTICATED: (anthropic.AuthenticationError, 401, "authentication_error", None),
    FaultKind.UNPAID: (anthropic.APIStatusError, 402, "billing_error", None),
    FaultKind.FORBIDDEN: (anthropic.PermissionDeniedError, 403, "permission_error", None),
    FaultKind.NOT_FOUND: (anthropic.NotFoundError, 404, "not_found_error", None),
    FaultKind.INTERNAL: (anthropic.InternalServerError, 500, "api_error", None),
    FaultKind.BAD_GATEWAY: (anthropic.InternalServerError, 502, "api_error", None),
    FaultKind.UNAVAILABLE: (anthropic.ServiceUnavailableError, 503, "api_error", None),
    FaultKind.TIMEOUT: (anthropic.GatewayTimeoutError, 504, "timeout_error", None),
    FaultKind.OVERLOADED: (anthropic.OverloadedError, 529, "overloaded_error", None),
    FaultKind.OVERLOADED_STREAM: (anthropic.OverloadedError, 529, "overloaded_error", None),
}


def test_each_refusal_raises_the_matching_sdk_exception() -> None:
    async def meet(client: anthropic.AsyncAnthropic) -> dict[FaultKind, tuple[object, ...]]:
        found: dict[FaultKind, tuple[object, ...]] = {}
        for kind in REFUSALS:
            script(server, kind)
            with pytest.raises(anthropic.APIStatusError) as refused:
                await message(client)
            error = refused.value
            assert error.body == json.loads(error.response.text)
            assert isinstance(error.body, dict) and error.body["request_id"] == error.request_id
            found[kind] = (type(error), error.status_code, error.type, error.error_code)
        return found

    with running() as server:
        assert with_anthropic(server, meet) == REFUSALS


def test_a_refusal_can_have_any_code_and_hint() -> None:
    async def meet(client: anthropic.AsyncAnthropic) -> anthropic.APIStatusError:
        with pytest.raises(anthropic.RateLimitError) as refused:
            await message(client)
        return refused.value

    with running() as server:
        script(server, FaultKind.BARE_QUOTA, code="a_new_limit", message="No.")
        named = with_anthropic(server, meet)
        script(server, FaultKind.RAMP, retry_delay=2.2)
        ramp = with_anthropic(server, meet)
        script(server, FaultKind.SPEND_LIMIT)
        spend = with_anthropic(server, meet)
    assert (named.error_code, named.api_message) == ("a_new_limit", "No.")
    assert ramp.response.headers["retry-after"] == "3"
    assert "retry-after" not in named.response.headers
    assert "retry-after" not in spend.response.headers


def test_an_overload_error_can_come_in_the_middle_of_a_stream() -> None:
    heard: list[str] = []

    async def listen(client: anthropic.AsyncAnthropic) -> None:
        async with client.messages.stream(
            model="m", max_tokens=4000, messages=[{"role": "user", "content": ISSUE}]
        ) as told:
            async for piece in told.text_stream:
                heard.append(piece)  # noqa: PERF401 - what was heard before the error is wanted

    with running() as server:
        script(server, FaultKind.OVERLOADED_STREAM)
        with pytest.raises(anthropic.APIStatusError) as refused:
            with_anthropic(server, listen)
    assert "".join(heard).startswith("# Low-level design")
    assert (refused.value.status_code, refused.value.type) == (200, "overloaded_error")


@pytest.mark.parametrize("secret", ["a-stranger", ""])
def test_a_key_that_is_unknown_or_missing_is_refused(secret: str) -> None:
    with running() as server:
        headers = {"x-api-key": secret, "anthropic-version": "2023-06-01"}
        body = b'{"model": "m", "max_tokens": 1, "messages": []}'
        assert server.refused("GET", "/v1/models", None, **headers) == 401
        assert server.refused("POST", "/v1/messages", body, **headers) == 401


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"model": "m", "messages": []}',
        b'{"model": "m", "messages": [], "max_tokens": "many"}',
    ],
)
def test_a_malformed_request_is_a_bad_request(body: bytes) -> None:
    with running() as server:
        assert server.refused("POST", "/v1/messages", body) == 400


def test_every_response_reports_the_remaining_limits() -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> tuple[dict[str, str], dict[str, str]]:
        raw = await client.messages.with_raw_response.create(
            model="m", max_tokens=4000, messages=[{"role": "user", "content": ISSUE}]
        )
        with pytest.raises(anthropic.RateLimitError) as refused:
            await message(client)
        return dict(raw.headers), dict(refused.value.response.headers)

    limits = OfflineLimits(rate=1, input_tokens=1000, output_tokens=2000)
    with running(ServerConfig(limits=limits)) as server:
        good, refused = with_anthropic(server, ask)
    given = (len(ISSUE) + 3) // 4
    assert (good[f"{RATE}-requests-limit"], good[f"{RATE}-requests-remaining"]) == ("1", "0")
    assert good[f"{RATE}-input-tokens-remaining"] == str(1000 - given)
    assert int(good[f"{RATE}-output-tokens-remaining"]) < 2000
    assert good[f"{RATE}-tokens-limit"] == "3000"
    assert 1 <= int(refused["retry-after"]) <= 60
    reset = datetime.fromisoformat(refused[f"{RATE}-requests-reset"])
    assert reset.tzinfo and 50 < reset.timestamp() - datetime.now().timestamp() <= 60
    assert refused["request-id"] != good["request-id"]


def test_without_hints_a_refusal_explains_nothing() -> None:
    async def ask(client: anthropic.AsyncAnthropic) -> anthropic.APIStatusError:
        await message(client)
        with pytest.raises(anthropic.RateLimitError) as refused:
            await message(client)
        return refused.value

    with running(ServerConfig(limits=OfflineLimits(rate=1), hints=Hints.NONE)) as server:
        error = with_anthropic(server, ask)
    assert not [name for name in error.response.headers if "ratelimit" in name or "retry" in name]
    assert "1" not in (error.api_message or "1")
