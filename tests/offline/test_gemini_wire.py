"""The server's responses as Google's SDK reads them."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.genai import errors, types

from agentos.http.server import loopback_address
from agentos.offline.config import Hints, Latency, ServerConfig
from agentos.offline.rate_limits import OfflineLimits

from .serving import ISSUE, KEYS, running

TYPE = "type.googleapis.com/google.rpc."


def test_a_response_has_text_usage_and_the_real_model_name() -> None:
    with running() as server:
        answer = server.ask()
    assert answer.text and answer.text.startswith("# Low-level design: Show rows")
    assert answer.model_version == "offline-rules-1"
    assert answer.candidates and answer.candidates[0].finish_reason is types.FinishReason.STOP
    usage = answer.usage_metadata
    assert usage and usage.prompt_token_count == (len(ISSUE) + 3) // 4
    assert usage.total_token_count == usage.prompt_token_count + (usage.candidates_token_count or 0)


def test_a_stream_adds_up_to_the_whole_answer() -> None:
    with running() as server:
        client, whole = server.client, server.ask().text
        pieces = list(client.models.generate_content_stream(model="any", contents=ISSUE))
    assert len(pieces) > 1
    assert "".join(piece.text or "" for piece in pieces) == whole
    ends = [piece.candidates[0].finish_reason for piece in pieces if piece.candidates]
    assert ends == [None] * (len(ends) - 1) + [types.FinishReason.STOP]


def test_a_stream_without_sse_is_one_json_array() -> None:
    body = json.dumps({"contents": [{"parts": [{"text": ISSUE}]}]}).encode()
    with running() as server:
        key = {"x-goog-api-key": KEYS[0].secret}
        found = server.call("POST", "/v1/models/any:streamGenerateContent", body, **key)
    assert len(json.loads(found)) > 1


def test_a_schema_makes_it_a_review() -> None:
    with running() as server:
        verdict = json.loads(server.review(ISSUE))
        roles = [call["role"] for call in server.ledger()["calls"]]
    assert verdict["verdict"] == "REVISE"
    assert roles == ["review"]


GRADE = {
    "type": "object",
    "properties": {"grade": {"type": "string", "enum": ["good"]}},
    "required": ["grade"],
}
FUNCTIONS = [
    types.FunctionDeclaration(name="search", parameters=types.Schema(type=types.Type.OBJECT)),
    types.FunctionDeclaration(name="grade", parameters_json_schema=GRADE),
]


def forced(*names: str, max_output_tokens: int | None = None) -> types.GenerateContentConfig:
    calling = types.FunctionCallingConfig(
        mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=list(names) or None
    )
    return types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=FUNCTIONS)],
        tool_config=types.ToolConfig(function_calling_config=calling),
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        max_output_tokens=max_output_tokens,
    )


def test_a_forced_tool_is_used() -> None:
    with running() as server:
        models = server.client.models
        whole = models.generate_content(model="any", contents=ISSUE, config=forced("grade"))
        streamed = list(models.generate_content_stream(model="any", contents=ISSUE, config=forced("grade")))
        first = models.generate_content(model="any", contents=ISSUE, config=forced())
    for answer in (whole, *streamed):
        [call] = answer.function_calls or []
        assert (call.name, call.args) == ("grade", {"grade": "good"})
    [call] = first.function_calls or []
    assert (call.name, call.args) == ("search", {})


def test_a_tool_call_that_is_cut_is_text() -> None:
    with running() as server:
        config = forced("grade", max_output_tokens=1)
        answer = server.client.models.generate_content(model="any", contents=ISSUE, config=config)
    assert answer.text == '{"gr' and not answer.function_calls


@pytest.mark.parametrize("name", ["response_schema", "response_json_schema"])
def test_a_schema_that_is_no_reviews_is_followed(name: str) -> None:
    schemas = {"response_schema": types.Schema.model_validate(GRADE), "response_json_schema": GRADE}
    config = types.GenerateContentConfig.model_validate(
        {"response_mime_type": "application/json", name: schemas[name]}
    )
    with running() as server:
        answer = server.client.models.generate_content(model="any", contents=ISSUE, config=config)
    assert json.loads(answer.text or "") == {"grade": "good"}


def test_tokens_are_counted_and_models_are_listed() -> None:
    with running() as server:
        client = server.client
        assert client.models.count_tokens(model="any", contents="12345678").total_tokens == 2
        assert [model.name for model in client.models.list()] == ["models/offline-rules-1"]


def test_an_unknown_key_is_refused_in_googles_format() -> None:
    with running() as server, pytest.raises(errors.ClientError) as refused:
        server.ask(secret="a-stranger")
    assert (refused.value.code, refused.value.status) == (400, "INVALID_ARGUMENT")
    assert refused.value.details["error"]["details"][0]["reason"] == "API_KEY_INVALID"


def test_any_key_is_accepted_if_configured() -> None:
    with running(ServerConfig(any_key=True)) as server:
        assert server.ask(secret="a-stranger").text
        call_log = json.dumps(server.ledger())
    assert "a-stranger" not in call_log
    assert "unknown-" in call_log


def test_the_ledger_never_contains_a_secret() -> None:
    with running() as server:
        server.ask()
        call_log = server.ledger()
    assert not any(key.secret in json.dumps(call_log) for key in KEYS)
    assert call_log["calls"][0]["key"] == "key-1"
    assert call_log["calls"][0]["item"] == "Show rows"


def test_a_call_over_the_rate_is_told_when_to_retry() -> None:
    with running(ServerConfig(limits=OfflineLimits(rate=1))) as server:
        server.ask()
        server.ask(secret=KEYS[1].secret)
        with pytest.raises(errors.ClientError) as refused:
            server.ask()
    details = {entry["@type"]: entry for entry in refused.value.details["error"]["details"]}
    violation = details[f"{TYPE}QuotaFailure"]["violations"][0]
    assert violation["quotaId"] == "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
    assert violation["quotaValue"] == "1"
    assert 50 < float(details[f"{TYPE}RetryInfo"]["retryDelay"].rstrip("s")) <= 60


def test_every_exceeded_quota_is_listed_with_its_value() -> None:
    limits = OfflineLimits(rate=1, per_day=1, input_tokens=(len(ISSUE) + 3) // 4)
    with running(ServerConfig(limits=limits)) as server:
        server.ask()
        with pytest.raises(errors.ClientError) as refused:
            server.ask()
    failure = refused.value.details["error"]["details"][0]
    assert [(over["quotaId"], over["quotaValue"]) for over in failure["violations"]] == [
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "1"),
        ("GenerateContentInputTokensPerModelPerMinute-FreeTier", str(limits.input_tokens)),
        ("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "1"),
    ]
    assert failure["violations"][1]["quotaMetric"].endswith("_input_token_count")
    assert refused.value.details["error"]["details"][2]["retryDelay"] == "60s"


def test_without_hints_a_refusal_explains_nothing() -> None:
    with running(ServerConfig(limits=OfflineLimits(rate=1), hints=Hints.NONE)) as server:
        server.ask()
        with pytest.raises(errors.ClientError) as refused:
            server.ask()
    assert refused.value.code == 429
    assert "details" not in refused.value.details["error"]


def test_a_key_or_a_bucket_can_have_its_own_limits() -> None:
    special = {"key-1": OfflineLimits(rate=2)}
    with running(ServerConfig(limits=OfflineLimits(rate=1), special_limits=special)) as server:
        assert server.ask() and server.ask() and server.ask(secret=KEYS[1].secret)
        with pytest.raises(errors.ClientError):
            server.ask(secret=KEYS[1].secret)
        with pytest.raises(errors.ClientError):
            server.ask()
        assert server.ledger()["statuses"] == {"key-1": {"200": 2, "429": 1}, "key-2": {"200": 1, "429": 1}}


def test_each_model_can_be_limited_separately() -> None:
    with running(ServerConfig(limits=OfflineLimits(rate=1), per_model=True)) as server:
        for model in ("one", "two"):
            assert server.client.models.generate_content(model=model, contents=ISSUE).text
        with pytest.raises(errors.ClientError):
            server.client.models.generate_content(model="two", contents=ISSUE)


def test_keys_of_one_bucket_share_its_limit() -> None:
    config = ServerConfig(limits=OfflineLimits(per_day=1), buckets={"key-1": "p", "key-2": "p"})
    with running(config) as server:
        server.ask()
        with pytest.raises(errors.ClientError) as refused:
            server.ask(secret=KEYS[1].secret)
    assert "PerDay" in str(refused.value.details)


def test_the_ledger_counts_concurrent_calls() -> None:
    with running(ServerConfig(latency=Latency(0.2, 0.2))) as server, ThreadPoolExecutor(3) as pool:
        calls = [
            pool.submit(server.ask),
            pool.submit(server.ask),
            pool.submit(server.ask, ISSUE, "secret-two"),
        ]
        assert all(call.result().text for call in calls)
        call_log = server.ledger()
    assert call_log["max_concurrent"] == {"key-1": 2, "key-2": 1}
    assert (call_log["max_concurrent_all"], call_log["running"]) == (3, 0)


def test_latency_is_the_same_for_the_same_prompt() -> None:
    latency = Latency(0.2, 0.8)
    assert latency.of(7, "a") == latency.of(7, "a") != latency.of(8, "a")
    assert all(0.2 <= latency.of(1, str(n)) <= 0.8 for n in range(100))


def test_an_answer_is_cut_at_the_requested_number_of_tokens() -> None:
    with running() as server:
        client = server.client
        config = types.GenerateContentConfig(max_output_tokens=10)
        answer = client.models.generate_content(model="any", contents=ISSUE, config=config)
    assert len(answer.text or "") == 40
    assert answer.candidates and answer.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"contents": 3}'])
def test_a_malformed_request_is_an_invalid_argument(body: bytes) -> None:
    with running() as server:
        assert server.refused("POST", "/v1beta/models/any:generateContent", body) == 400


def test_a_host_name_that_is_not_loopback_is_refused() -> None:
    with running() as server:
        assert server.refused("GET", "/_offline/ledger", Host="evil.example") == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::", ""])
def test_only_loopback_addresses_can_be_bound(host: str) -> None:
    with pytest.raises(ValueError, match="must be a loopback address"):
        loopback_address(host)
