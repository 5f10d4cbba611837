"""What Anthropic's known error responses mean for a key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.anthropic.refusals import limits_seen, read_refusal

WALL = 1782892800.0
HEADERS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2026-07-01T08:00:12Z",
    "anthropic-ratelimit-tokens-limit": "38000",
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-output-tokens-limit": "8000",
}


def body(kind: str, code: str = "", message: str = "") -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": "req_1"}


def read(status: int, kind: str, code: str = "", message: str = "", **headers: str) -> Refusal | None:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return read_refusal(status, body(kind, code, message), named, WALL)


def rejected(why: str) -> Refusal:
    return Refusal(RefusalKind.KEY_REJECTED, why)


@pytest.mark.parametrize(
    ("status", "kind", "code", "found"),
    [
        (429, "rate_limit_error", "", Refusal(RefusalKind.RATE_LIMITED, "429")),
        (
            429,
            "rate_limit_error",
            "ramp_limit_exceeded",
            Refusal(RefusalKind.RATE_LIMITED, "429 ramp_limit_exceeded"),
        ),
        (
            429,
            "rate_limit_error",
            "enforced_spend_limit_reached",
            rejected("429 enforced_spend_limit_reached"),
        ),
        (401, "authentication_error", "", rejected("401 unauthorised")),
        (402, "billing_error", "", rejected("402 unpaid")),
        (403, "permission_error", "", Refusal(RefusalKind.NO_ACCESS, "403 forbidden")),
        (500, "api_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "500")),
        (502, "api_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "502")),
        (503, "api_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "503")),
        (504, "timeout_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "504")),
        (520, "", "", Refusal(RefusalKind.PROVIDER_ERROR, "520")),
        (529, "overloaded_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "529")),
        (200, "overloaded_error", "", Refusal(RefusalKind.PROVIDER_ERROR, "200")),
        (400, "invalid_request_error", "", None),
        (404, "not_found_error", "", None),
        (501, "api_error", "", None),
        (413, "request_too_large", "", None),
    ],
)
def test_each_error_response_means_the_expected_refusal(
    status: int, kind: str, code: str, found: Refusal | None
) -> None:
    assert read(status, kind, code) == found


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("Wed, 01 Jul 2026 08:00:30 GMT", 30.0), ("soon", None), ("", None)],
)
def test_the_retry_hint_is_read_in_every_form(written: str, seconds: float | None) -> None:
    found = read(429, "rate_limit_error", retry_after=written)
    assert found is not None and found.seconds == seconds


def test_a_spent_account_is_rejected_without_a_hint() -> None:
    found = read(429, "rate_limit_error", "enforced_spend_limit_reached", retry_after="7")
    assert found is not None and found.kind is RefusalKind.KEY_REJECTED and found.seconds is None


def test_a_refusal_carries_the_limits_of_its_headers() -> None:
    found = read_refusal(429, body("rate_limit_error"), {**HEADERS, "retry-after": "12"}, WALL)
    assert found is not None and found.seconds == 12.0
    assert found.limits == (
        LimitSeen(Dimension.REQUESTS, 50.0),
        LimitSeen(Dimension.TOKENS, 38000.0),
        LimitSeen(Dimension.INPUT, 30000.0),
        LimitSeen(Dimension.OUTPUT, 8000.0),
    )


def test_a_response_carries_the_limits_of_its_headers() -> None:
    assert [limit.amount for limit in limits_seen(HEADERS)] == [50.0, 38000.0, 30000.0, 8000.0]
    assert {limit.seconds for limit in limits_seen(HEADERS)} == {60.0}


@pytest.mark.parametrize("value", ["", "0", "-3", "many", "1.5", "nan", "٣"])
def test_a_limit_that_is_not_a_number_is_ignored(value: str) -> None:
    assert limits_seen({"anthropic-ratelimit-requests-limit": value}) == ()


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize(
    "message", ["429 rate_limit_error", "overloaded_error", "issue #429", "retry-after 5"]
)
def test_message_text_is_never_interpreted(status: int, message: str) -> None:
    assert read(status, "invalid_request_error", message=message) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "details", "error_code", "message"]), inner)
    ),
)


@given(st.integers(400, 599), anything)
def test_any_body_is_read_without_an_exception(code: int, found: object) -> None:
    refusal = read_refusal(code, found, {}, WALL)
    assert (refusal is not None) == (code in (401, 402, 403, 408, 429) or (code >= 500 and code != 501))
