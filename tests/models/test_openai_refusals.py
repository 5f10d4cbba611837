"""What the known error responses of OpenAI and compatible servers mean for a key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.openai.refusals import limits_seen, read_refusal

WALL = 1782892800.0
HEADERS = {
    "x-ratelimit-limit-requests": "500",
    "x-ratelimit-remaining-requests": "499",
    "x-ratelimit-reset-requests": "120ms",
    "x-ratelimit-limit-tokens": "30000",
    "x-ratelimit-remaining-tokens": "0",
    "x-ratelimit-reset-tokens": "6m0s",
}


def read(status: int, code: object = "", message: str = "", **headers: str) -> Refusal | None:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return read_refusal(status, {"message": message, "type": "x", "code": code}, named, WALL)


def rejected(why: str) -> Refusal:
    return Refusal(RefusalKind.KEY_REJECTED, why)


def limited(why: str, seconds: float | None = None) -> Refusal:
    return Refusal(RefusalKind.RATE_LIMITED, why, seconds)


@pytest.mark.parametrize(
    ("status", "code", "found"),
    [
        (429, "rate_limit_exceeded", limited("429 rate_limit_exceeded")),
        (429, "slow_down", limited("429 slow_down")),
        (429, None, limited("429")),
        (429, "insufficient_quota", rejected("429 insufficient_quota")),
        (429, "credit_balance_exhausted", rejected("429 credit_balance_exhausted")),
        (429, "project_spend_limit_exceeded", rejected("429 project_spend_limit_exceeded")),
        (429, "organization_usage_limit_exceeded", rejected("429 organization_usage_limit_exceeded")),
        (403, "insufficient_quota", rejected("403 insufficient_quota")),
        (401, "invalid_api_key", rejected("401 unauthorised")),
        (402, None, rejected("402 unpaid")),
        (403, "unsupported_country_region_territory", Refusal(RefusalKind.NO_ACCESS, "403 forbidden")),
        (408, None, Refusal(RefusalKind.PROVIDER_ERROR, "408")),
        (500, None, Refusal(RefusalKind.PROVIDER_ERROR, "500")),
        (502, None, Refusal(RefusalKind.PROVIDER_ERROR, "502")),
        (503, "server_is_overloaded", Refusal(RefusalKind.PROVIDER_ERROR, "503 server_is_overloaded")),
        (504, None, Refusal(RefusalKind.PROVIDER_ERROR, "504")),
        (520, None, Refusal(RefusalKind.PROVIDER_ERROR, "520")),
        (529, None, Refusal(RefusalKind.PROVIDER_ERROR, "529")),
        (400, "context_length_exceeded", None),
        (404, "model_not_found", None),
        (501, None, None),
        (422, None, None),
    ],
)
def test_each_error_response_means_the_expected_refusal(
    status: int, code: str | None, found: Refusal | None
) -> None:
    assert read(status, code) == found


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "insufficient_quota"}},
        {"code": "insufficient_quota"},
    ],
)
def test_the_code_is_found_in_the_whole_body_and_in_a_bare_error_object(body: object) -> None:
    found = read_refusal(429, body, {}, WALL)
    assert found is not None and found.kind is RefusalKind.KEY_REJECTED


@pytest.mark.parametrize("body", [None, "busy", {"error": "busy"}, {"error": {"code": 429}}, [], {}])
def test_a_compatible_server_is_understood_by_its_status_alone(body: object) -> None:
    found = read_refusal(429, body, {}, WALL)
    assert found is not None and found.kind is RefusalKind.RATE_LIMITED
    assert read_refusal(404, body, {}, WALL) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        (HEADERS, 360.0),
        ({**HEADERS, "retry-after": "20"}, 20.0),
        ({**HEADERS, "x-ratelimit-remaining-tokens": "9"}, None),
        ({**HEADERS, "x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "9"}, 0.12),
        ({}, None),
    ],
)
def test_the_hint_is_the_header_or_the_reset_of_the_exhausted_limit(
    headers: dict[str, str], seconds: float | None
) -> None:
    found = read_refusal(429, {"code": "rate_limit_exceeded"}, headers, WALL)
    assert found is not None and found.seconds == seconds


def test_the_later_reset_of_two_exhausted_limits_counts() -> None:
    both = {**HEADERS, "x-ratelimit-remaining-requests": "0"}
    found = read_refusal(429, {"code": "rate_limit_exceeded"}, both, WALL)
    assert found is not None and found.seconds == 360.0


def test_responses_and_refusals_carry_the_limits_of_their_headers() -> None:
    limits = (LimitSeen(Dimension.REQUESTS, 500.0), LimitSeen(Dimension.TOKENS, 30000.0))
    assert limits_seen(HEADERS) == limits
    found = read_refusal(429, {}, HEADERS, WALL)
    assert found is not None and found.limits == limits


@pytest.mark.parametrize("value", ["", "0", "-1", "unlimited", "1e9", "٣"])
def test_a_limit_that_is_not_a_number_is_ignored(value: str) -> None:
    assert limits_seen({"x-ratelimit-limit-requests": value}) == ()


@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("message", ["429 rate_limit_exceeded", "insufficient_quota", "fixes #429"])
def test_message_text_is_never_interpreted(status: int, message: str) -> None:
    assert read(status, message=message) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "code", "type", "message"]), inner)
    ),
)


@given(st.integers(400, 599), anything)
def test_any_body_is_read_without_an_exception(code: int, body: object) -> None:
    refusal = read_refusal(code, body, {}, WALL)
    assert (refusal is not None) == (code in (401, 402, 403, 408, 429) or (code >= 500 and code != 501))
