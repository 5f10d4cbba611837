"""Each kind of fault as the real SDK sees it."""

import json
import resource
import urllib.request

import httpx2
import pytest
from google.genai import errors, types

from agentos.offline.config import ServerConfig
from agentos.offline.fault_effects import PAYLOADS
from agentos.offline.faults import FaultKind

from .serving import ISSUE, KEYS, Running, failing, running

STATUSES = [
    (FaultKind.MINUTE_QUOTA, 429),
    (FaultKind.DAY_QUOTA, 429),
    (FaultKind.BOTH_QUOTAS, 429),
    (FaultKind.BARE_QUOTA, 429),
    (FaultKind.RETRY_AFTER, 429),
    (FaultKind.INPUT_QUOTA, 429),
    (FaultKind.RAMP, 429),
    (FaultKind.SPEND_LIMIT, 429),
    (FaultKind.OWN_SPEND_LIMIT, 429),
    (FaultKind.INSUFFICIENT_QUOTA, 429),
    (FaultKind.NO_CREDIT, 402),
    (FaultKind.KEY_INVALID, 400),
    (FaultKind.BAD_REQUEST, 400),
    (FaultKind.UNAUTHENTICATED, 401),
    (FaultKind.UNPAID, 402),
    (FaultKind.FORBIDDEN, 403),
    (FaultKind.NOT_FOUND, 404),
    (FaultKind.INTERNAL, 500),
    (FaultKind.BAD_GATEWAY, 502),
    (FaultKind.UNAVAILABLE, 503),
    (FaultKind.TIMEOUT, 504),
    (FaultKind.OVERLOADED, 529),
    (FaultKind.OVERLOADED_STREAM, 529),
]


def refusal(server: Running) -> errors.APIError:
    with pytest.raises(errors.APIError) as refused:
        server.ask()
    return refused.value


@pytest.mark.parametrize(("kind", "status"), STATUSES)
def test_a_refusal_has_its_status_and_applies_once(kind: FaultKind, status: int) -> None:
    with failing(kind) as server:
        assert refusal(server).code == status
        assert server.ask().text
        assert [call["status"] for call in server.ledger()["calls"]] == [status, 200]


def test_a_daily_quota_comes_with_a_short_misleading_delay() -> None:
    with failing(FaultKind.DAY_QUOTA) as server:
        details = str(refusal(server).details)
    assert "GenerateRequestsPerDayPerProjectPerModel-FreeTier" in details
    assert "'retryDelay': '5s'" in details


@pytest.mark.parametrize("value", ["7", "Wed, 21 Oct 2026 07:28:00 GMT", "NaN", "-5", "1e9"])
def test_retry_after_is_sent_unchanged(value: str) -> None:
    with failing(FaultKind.RETRY_AFTER, retry_after=value) as server:
        refused = refusal(server)
    assert refused.response.headers["retry-after"] == value
    assert "details" not in refused.details["error"]


@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.RESET_MIDWAY])
def test_a_reset_breaks_the_clients_connection(kind: FaultKind) -> None:
    with failing(kind) as server:
        with pytest.raises(httpx2.TransportError):
            server.ask()
        assert server.ask().text
        assert server.ledger()["calls"][0]["ending"].startswith("reset")


def test_a_hanging_call_ends_when_the_client_disconnects() -> None:
    with failing(FaultKind.HANG) as server:
        config = types.GenerateContentConfig(http_options=types.HttpOptions(timeout=200))
        with pytest.raises(httpx2.TimeoutException):
            server.client.models.generate_content(model="any", contents=ISSUE, config=config)
        assert server.ask().text
        first = server.ledger()["calls"][0]
    assert (first["ending"], first["status"]) == ("dropped", None)


@pytest.mark.parametrize("kind", [FaultKind.SLOW, FaultKind.DRIP])
def test_a_slow_response_is_complete(kind: FaultKind) -> None:
    with failing(kind, seconds=0.3) as server:
        assert server.ask().text == server.ask().text
        call = server.ledger()["calls"][0]
    assert call["ended"] - call["started"] >= 0.25


@pytest.mark.parametrize("kind", [FaultKind.CUT, FaultKind.HTML])
def test_a_body_that_is_not_json_still_has_status_200(kind: FaultKind) -> None:
    with failing(kind) as server:
        with pytest.raises((json.JSONDecodeError, errors.APIError)):
            server.ask()
        assert server.ledger()["calls"][0]["status"] == 200


def test_a_huge_body_is_never_in_memory_as_a_whole() -> None:
    body = json.dumps({"contents": [{"parts": [{"text": ISSUE}]}]}).encode()
    headers = {"x-goog-api-key": KEYS[0].secret}
    with failing(FaultKind.HUGE, megabytes=200) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        url = f"{server.url}/v1beta/models/any:generateContent"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
            size = sum(len(piece) for piece in iter(lambda: answer.read(1 << 20), b""))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert size > 200 * 1024 * 1024
    assert grown < 20 * 1024


@pytest.mark.parametrize("payload", [*PAYLOADS, "all", "rm -rf /"])
def test_a_hostile_draft_contains_its_payload(payload: str) -> None:
    with failing(FaultKind.HOSTILE, payload=payload) as server:
        text = server.ask().text or ""
    assert text.startswith(PAYLOADS.get(payload, "\x1b]52" if payload == "all" else payload))
    assert "# Low-level design" in text


def test_a_hostile_verdict_is_prose_or_valid_json() -> None:
    with failing(FaultKind.HOSTILE, payload="prose") as server:
        assert server.review(ISSUE).startswith("APPROVED.")
    with failing(FaultKind.HOSTILE, payload="osc52") as server:
        verdict = json.loads(server.review(ISSUE))
    assert verdict["verdict"] == "REVISE"
    assert verdict["rationale"].startswith("\x1b]52")


def test_a_blocked_prompt_has_no_candidates() -> None:
    with failing(FaultKind.BLOCKED) as server:
        answer = server.ask()
    assert not answer.candidates
    assert answer.prompt_feedback and answer.prompt_feedback.block_reason is types.BlockedReason.SAFETY


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FaultKind.SAFETY, types.FinishReason.SAFETY), (FaultKind.MAX_TOKENS, types.FinishReason.MAX_TOKENS)],
)
def test_an_answer_can_be_cut_or_blocked(kind: FaultKind, reason: types.FinishReason) -> None:
    with failing(kind) as server:
        answer, good = server.ask(), server.ask()
    assert answer.candidates and answer.candidates[0].finish_reason is reason
    assert len(answer.text or "") < len(good.text or "")


def test_faults_can_be_added_and_cleared_at_run_time() -> None:
    with running(ServerConfig()) as server:
        server.call("POST", "/_offline/faults", b'{"kind": "503", "times": null}')
        assert refusal(server).code == 503
        server.call("DELETE", "/_offline/faults")
        assert server.ask().text


def test_an_overload_error_can_come_in_the_middle_of_a_stream() -> None:
    heard: list[str] = []
    with failing(FaultKind.OVERLOADED_STREAM) as server:
        stream = server.client.models.generate_content_stream(model="any", contents=ISSUE)
        with pytest.raises(errors.ServerError, match="overloaded"):
            heard.extend(piece.text or "" for piece in stream)
    assert heard and heard[0].startswith("# Low-level design")
