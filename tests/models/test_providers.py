"""One contract for all vendors: our clients with the real SDKs, against the offline server."""

import asyncio
import json
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, Provider
from agentos.core.ratelimit.limits import Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.models.anthropic.client import Anthropic
from agentos.models.client_base import MAX_RESPONSE_BYTES
from agentos.models.gemini.client import Gemini
from agentos.models.openai.client import OpenAI
from agentos.offline.config import ServerConfig
from agentos.offline.faults import FaultKind
from agentos.offline.rate_limits import OfflineLimits
from tests.offline.asking import SCHEMA, script
from tests.offline.serving import ISSUE, KEYS, Running, running

VENDORS: dict[str, type[Gemini] | type[Anthropic] | type[OpenAI]] = {
    "gemini": Gemini,
    "anthropic": Anthropic,
    "openai": OpenAI,
}
WITH_HEADERS = ("anthropic", "openai")
DRAFT = ModelRequest("drafter", ISSUE)
REVIEW = ModelRequest("reviewer", ISSUE, json.dumps(SCHEMA))
LIMITS = OfflineLimits(rate=1000, tokens=900_000, input_tokens=600_000, output_tokens=300_000)


@dataclass(frozen=True, slots=True)
class Caller:
    """A vendor's client with its own event loop, as in a worker."""

    vendor: str
    provider: Provider
    server: Running
    runner: asyncio.Runner

    def ask(
        self, question: ModelRequest = DRAFT, secret: str = KEYS[0].secret, model: str = "any"
    ) -> ModelResponse:
        access = LeasedKey("key-1", secret, self.server.url, model)
        return self.runner.run(self.provider.complete(question, access))

    def refusal(self, secret: str = KEYS[0].secret) -> Refusal:
        with pytest.raises(CallRefused) as caught:
            self.ask(secret=secret)
        return caught.value.refusal

    def meets(self, kind: FaultKind, **shape: object) -> None:
        script(self.server, kind, **shape)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ServerConfig(limits=LIMITS)) as found:
        yield found


@pytest.fixture(scope="module", params=VENDORS)
def caller(request: pytest.FixtureRequest, server: Running) -> Iterator[Caller]:
    with asyncio.Runner() as runner:
        provider = VENDORS[request.param]()
        yield Caller(request.param, provider, server, runner)
        runner.run(close_clients(provider))


async def close_clients(provider: Gemini | Anthropic | OpenAI) -> None:
    """Closes connections that in a worker would end with its process."""
    for client in vars(provider)["_clients"].values():
        await (client.aio.aclose() if isinstance(provider, Gemini) else client.close())


# Responses


def test_a_response_has_text_model_and_usage(caller: Caller) -> None:
    answer = caller.ask()
    assert answer.text.startswith("# Low-level design: Show rows")
    assert answer.model == "offline-rules-1"
    assert answer.usage.calls == 1
    assert answer.usage.input_tokens == (len(ISSUE) + 3) // 4
    assert answer.usage.output_tokens == (len(answer.text) + 3) // 4


def test_with_a_schema_the_response_is_a_verdict(caller: Caller) -> None:
    verdict = json.loads(caller.ask(REVIEW).text)
    assert verdict["verdict"] == "REVISE" and set(verdict) == set(SCHEMA["properties"])


def test_each_call_uses_its_leased_key(caller: Caller) -> None:
    for key in KEYS:
        caller.ask(secret=key.secret)
    used = [call["key"] for call in caller.server.ledger()["calls"][-2:]]
    assert used == [key.name for key in KEYS]


def test_limits_in_the_vendors_headers_are_reported(caller: Caller) -> None:
    seen = {limit.dimension: limit.amount for limit in caller.ask().limits}
    named = {Dimension.REQUESTS: 1000.0, Dimension.TOKENS: 900_000.0}
    if caller.vendor == "anthropic":
        named |= {Dimension.INPUT: 600_000.0, Dimension.OUTPUT: 300_000.0}
    assert seen == (named if caller.vendor in WITH_HEADERS else {})


# Refusals


@pytest.mark.parametrize(
    ("kind", "shape", "seconds"),
    [
        (FaultKind.MINUTE_QUOTA, {"retry_delay": 7}, 7.0),
        (FaultKind.RETRY_AFTER, {"retry_after": "3"}, 3.0),
    ],
)
def test_a_429_is_a_rate_limit_with_its_hint(
    caller: Caller, kind: FaultKind, shape: dict[str, object], seconds: float
) -> None:
    caller.meets(kind, **shape)
    found = caller.refusal()
    assert found.kind is RefusalKind.RATE_LIMITED
    assert found.seconds == pytest.approx(seconds, abs=0.5)


def test_a_bare_429_is_a_rate_limit_without_a_hint(caller: Caller) -> None:
    caller.meets(FaultKind.BARE_QUOTA)
    found = caller.refusal()
    assert found.kind is RefusalKind.RATE_LIMITED and found.seconds is None


def test_a_refusal_carries_the_exceeded_limit(caller: Caller) -> None:
    caller.meets(FaultKind.MINUTE_QUOTA, limit=15, retry_delay=2)
    # Gemini states it in the refusal, the others in the headers of every response.
    amount = 1000.0 if caller.vendor in WITH_HEADERS else 15.0
    assert LimitSeen(Dimension.REQUESTS, amount) in caller.refusal().limits


def test_an_unknown_key_is_rejected(caller: Caller) -> None:
    assert caller.refusal(secret="made up").kind is RefusalKind.KEY_REJECTED


@pytest.mark.parametrize("kind", [FaultKind.KEY_INVALID, FaultKind.UNAUTHENTICATED, FaultKind.UNPAID])
def test_an_invalid_or_unpaid_key_is_rejected(caller: Caller, kind: FaultKind) -> None:
    caller.meets(kind)
    assert caller.refusal().kind is RefusalKind.KEY_REJECTED


def test_a_forbidden_model_says_nothing_against_the_key(caller: Caller) -> None:
    caller.meets(FaultKind.FORBIDDEN)
    refusal = caller.refusal()
    assert refusal.kind is RefusalKind.NO_ACCESS and len(refusal.reason) > len("403 forbidden")


@pytest.mark.parametrize("kind", [FaultKind.INSUFFICIENT_QUOTA, FaultKind.NO_CREDIT, FaultKind.SPEND_LIMIT])
def test_an_account_without_credit_is_not_retried(caller: Caller, kind: FaultKind) -> None:
    caller.meets(kind)
    found = caller.refusal()
    assert found.kind is not RefusalKind.PROVIDER_ERROR
    if caller.vendor in WITH_HEADERS:
        assert found.kind is RefusalKind.KEY_REJECTED


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.INTERNAL,
        FaultKind.BAD_GATEWAY,
        FaultKind.UNAVAILABLE,
        FaultKind.TIMEOUT,
        FaultKind.OVERLOADED,
        FaultKind.RESET,
        FaultKind.RESET_MIDWAY,
        FaultKind.CUT,
        FaultKind.HTML,
    ],
)
def test_everything_that_is_not_a_response_is_a_provider_error(caller: Caller, kind: FaultKind) -> None:
    caller.meets(kind)
    assert caller.refusal().kind is RefusalKind.PROVIDER_ERROR


@pytest.mark.parametrize("kind", [FaultKind.HANG, FaultKind.DRIP])
def test_a_response_without_a_token_in_time_is_cut(caller: Caller, kind: FaultKind) -> None:
    """A half-open connection sends nothing; a slow body sends bytes, but no whole event for seconds."""
    caller.meets(kind, seconds=60)
    access = LeasedKey("key-1", KEYS[0].secret, caller.server.url, "any", call_timeout=0.5)
    began = time.monotonic()
    with pytest.raises(CallRefused) as caught:
        caller.runner.run(caller.provider.complete(DRAFT, access))
    assert caught.value.refusal.kind is RefusalKind.CUT
    assert caught.value.refusal.reason.startswith("no token for 0.5 s")
    assert 0.5 <= time.monotonic() - began < 20


def test_an_endless_body_is_not_read_to_its_end_and_not_asked_for_again(caller: Caller) -> None:
    caller.meets(FaultKind.HUGE, megabytes=500)
    tracemalloc.start()
    began = time.process_time()
    try:
        access = LeasedKey("key-1", KEYS[0].secret, caller.server.url, "any")
        with pytest.raises(
            BadRequest, match=r"127\.0\.0\.1 sent .* larger than \d+ MiB, which no model writes"
        ):
            caller.runner.run(caller.provider.complete(DRAFT, access))
        assert time.process_time() - began < 10, "the SDK copied an event that does not end again and again"
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_RESPONSE_BYTES
    finally:
        tracemalloc.stop()


def test_an_unreachable_server_is_a_provider_error(caller: Caller) -> None:
    access = LeasedKey("key-1", "secret", "http://127.0.0.1:9", "any")
    with pytest.raises(CallRefused) as caught:
        caller.runner.run(caller.provider.complete(DRAFT, access))
    assert caught.value.refusal.kind is RefusalKind.PROVIDER_ERROR


# Bad requests


@pytest.mark.parametrize("kind", [FaultKind.BAD_REQUEST, FaultKind.NOT_FOUND])
def test_a_bad_request_is_not_retried(caller: Caller, kind: FaultKind) -> None:
    caller.meets(kind)
    with pytest.raises(BadRequest):
        caller.ask()


def test_a_429_in_the_message_text_is_ignored(caller: Caller) -> None:
    caller.meets(FaultKind.BAD_REQUEST, message="429 RESOURCE_EXHAUSTED, see issue #429; overloaded_error")
    with pytest.raises(BadRequest):
        caller.ask()


def test_the_next_call_after_a_refusal_is_answered(caller: Caller) -> None:
    for kind in (FaultKind.MINUTE_QUOTA, FaultKind.UNAVAILABLE, FaultKind.RESET):
        caller.meets(kind)
        caller.refusal()
        assert caller.ask().usage.calls == 1


def test_no_error_contains_the_key(caller: Caller) -> None:
    for kind in (FaultKind.BAD_REQUEST, FaultKind.KEY_INVALID, FaultKind.UNAVAILABLE, FaultKind.CUT):
        caller.meets(kind)
        with pytest.raises((BadRequest, CallRefused)) as caught:
            caller.ask()
        assert KEYS[0].secret not in str(caught.value)
