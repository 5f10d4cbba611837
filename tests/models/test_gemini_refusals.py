"""What Gemini's known error responses mean for a key."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.gemini.refusals import read_refusal

WALL = 1782892800.0  # 2026-07-01, one o'clock in the morning Pacific
TO_MIDNIGHT = 23 * 3600.0
TYPE = "type.googleapis.com/google.rpc."
MINUTE = "GenerateRequestsPerMinutePerProjectPerModel"
DAY = "GenerateRequestsPerDayPerProjectPerModel"


def quota(*ids: str, value: object = "15") -> dict[str, Any]:
    shared = {"quotaMetric": "generate_requests", "quotaDimensions": {"model": "pro"}, "quotaValue": value}
    return {"@type": f"{TYPE}QuotaFailure", "violations": [shared | {"quotaId": name} for name in ids]}


def delay(text: object) -> dict[str, Any]:
    return {"@type": f"{TYPE}RetryInfo", "retryDelay": text}


def reason(text: str) -> dict[str, Any]:
    return {"@type": f"{TYPE}ErrorInfo", "reason": text, "domain": "googleapis.com"}


HELP = {"@type": f"{TYPE}Help", "links": [{"url": "https://ai.google.dev/429"}]}


def read(code: int, *details: object, message: str = "", **headers: str) -> Refusal | None:
    body = {"error": {"code": code, "message": message, "status": "X", "details": list(details)}}
    return read_refusal(code, body, {name.replace("_", "-"): text for name, text in headers.items()}, WALL)


def limited(why: str, seconds: float | None = None) -> Refusal:
    return Refusal(RefusalKind.RATE_LIMITED, why, seconds)


def spent(why: str, seconds: float | None = None) -> Refusal:
    return Refusal(RefusalKind.DAY_EXHAUSTED, why, seconds, TO_MIDNIGHT)


def rejected(why: str) -> Refusal:
    return Refusal(RefusalKind.KEY_REJECTED, why)


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        (MINUTE, Dimension.REQUESTS),
        (f"{MINUTE}-FreeTier", Dimension.REQUESTS),
        ("GenerateContentInputTokensPerModelPerMinute-FreeTier", Dimension.INPUT),
        ("GenerateContentPaidTierInputTokensPerModelPerMinute", Dimension.INPUT),
    ],
)
def test_a_quota_per_minute_is_a_rate_limit_with_its_value(name: str, dimension: Dimension) -> None:
    named = (LimitSeen(dimension, 15.0),)
    assert read(429, quota(name), HELP, delay("36s")) == replace(limited(f"429 {name}", 36.0), limits=named)


@pytest.mark.parametrize(
    "name", [DAY, f"{DAY}-FreeTier", "GenerateContentInputTokensPerModelPerDay-FreeTier"]
)
@pytest.mark.parametrize("hint", ["0s", "5s", "36s"])
def test_a_daily_quota_is_exhausted_until_midnight_pacific_whatever_the_hint(name: str, hint: str) -> None:
    assert read(429, quota(name), delay(hint)) == spent(f"429 {name}", float(hint[:-1]))


def test_a_daily_quota_takes_precedence() -> None:
    assert read(429, quota(MINUTE, DAY), delay("5s")) == spent(f"429 {MINUTE}, {DAY}", 5.0)
    assert read(429, quota(MINUTE), quota(DAY)) == spent(f"429 {MINUTE}, {DAY}")


def test_a_429_without_details_has_no_hint() -> None:
    assert read(429) == limited("429")
    assert read_refusal(429, {"error": {"code": 429}}, {}, WALL) == limited("429")
    assert read_refusal(429, None, {}, WALL) == limited("429")


def test_the_header_takes_precedence_over_the_details() -> None:
    assert read(429, delay("5s"), retry_after="7") == limited("429", 7.0)


def test_the_longest_of_several_hints_counts() -> None:
    assert read(429, delay("5s"), delay("9s"), delay("soon")) == limited("429", 9.0)


@pytest.mark.parametrize("value", ["0", 0])
def test_a_limit_of_zero_means_no_access(value: object) -> None:
    found = read(429, quota(f"{DAY}-FreeTier", value=value), delay("36s"))
    assert found == Refusal(RefusalKind.NO_ACCESS, f"429 no access: limit 0 for {DAY}-FreeTier")


@pytest.mark.parametrize(("code", "why"), [(401, "401 unauthorised"), (402, "402 unpaid")])
def test_an_invalid_or_unpaid_key_is_rejected(code: int, why: str) -> None:
    assert read(code) == rejected(why)


def test_a_403_is_about_the_model_unless_it_names_the_key() -> None:
    found = read(403)
    assert found and found.kind is RefusalKind.NO_ACCESS and found.reason.startswith("403 ")
    assert read(403, reason("CONSUMER_SUSPENDED")) == rejected("403 CONSUMER_SUSPENDED")


def test_an_invalid_key_comes_as_a_400() -> None:
    assert read(400, reason("API_KEY_INVALID")) == rejected("400 API_KEY_INVALID")


def test_rejected_keys_take_precedence_over_quotas() -> None:
    assert read(402, quota(MINUTE), delay("5s")) == rejected("402 unpaid")


@pytest.mark.parametrize("code", [408, 500, 502, 503, 504, 520, 529])
def test_server_errors_are_provider_errors(code: int) -> None:
    assert read(code) == Refusal(RefusalKind.PROVIDER_ERROR, str(code))
    assert read(code, retry_after="4") == Refusal(RefusalKind.PROVIDER_ERROR, str(code), 4.0)


@pytest.mark.parametrize("code", [400, 404, 409, 413, 422])
def test_a_bad_request_is_not_a_refusal(code: int) -> None:
    assert read(code) is None
    assert read(code, reason("FIELD_INVALID")) is None


@pytest.mark.parametrize("code", [400, 404])
@pytest.mark.parametrize(
    "message",
    ["429 RESOURCE_EXHAUSTED", "quota exceeded, retry in 36s", "API_KEY_INVALID", "PerDay limit: 0, see 429"],
)
def test_message_text_is_never_interpreted(code: int, message: str) -> None:
    assert read(code, message=message) is None
    assert read(code, HELP, {"@type": f"{TYPE}LocalizedMessage", "message": message}) is None


def test_what_google_does_not_implement_is_the_requests_fault() -> None:
    assert read(501) is None


def test_message_text_of_a_429_is_never_interpreted() -> None:
    assert read(429, message="PerDay quota, limit: 0, retry in 36s, API_KEY_INVALID") == limited("429")


def test_a_reason_of_another_type_is_ignored() -> None:
    assert read(400, {"@type": f"{TYPE}Help", "reason": "API_KEY_INVALID"}) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "details", "@type", "violations", "retryDelay", "quotaId", "quotaValue"]
            ),
            inner | st.sampled_from([f"{TYPE}{kind}" for kind in ("QuotaFailure", "RetryInfo", "ErrorInfo")]),
        )
    ),
)


@given(st.integers(400, 599), anything)
def test_any_body_is_read_without_an_exception(code: int, body: object) -> None:
    found = read_refusal(code, body, {}, WALL)
    assert (found is not None) == (code in (401, 402, 403, 408, 429) or (code >= 500 and code != 501))
