"""A server that wants the key, the memory or the run: what it says is masked, bounded and checked at one place."""

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentos.core.errors import BadRequest
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import ModelRequest, ModelResponse, Provider
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.http.connection import Connection, Handler, HttpRequest
from agentos.models.leased import LeasedModel
from tests.fuzz.test_answers import WHOLE
from tests.gateway.scripted import provider, whole
from tests.models.test_providers import VENDORS, close_clients

SECRET = "canary-key-9c1f77"
TEXT_PLACES: dict[str, tuple[Any, ...]] = {
    "gemini": ("candidates", 0, "content", "parts", 0, "text"),
    "anthropic": ("content", 0, "text"),
    "openai": ("choices", 0, "message", "content"),
}
MODEL_PLACES = {"gemini": "modelVersion", "anthropic": "model", "openai": "model"}
COUNT_PLACES = {
    "gemini": ("usageMetadata", "promptTokenCount"),
    "anthropic": ("usage", "input_tokens"),
    "openai": ("usage", "prompt_tokens"),
}


class Refused(Exception):
    """The call was refused; for tests, which end here."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Worker:
    """A leased model whose coordinator grants every lease at once."""

    def __init__(self, vendor: str, url: str, client: Provider) -> None:
        self.released: list[LeaseReleased] = []
        self._url = url
        role = RoleModel("drafter", (vendor,), ("m",))
        self.model = LeasedModel("LLD-1", (role,), {vendor: lambda: client}, self._on_event)
        self._vendor = vendor

    def _on_event(self, event: WorkerEvent) -> None:
        if isinstance(event, LeaseRequested):
            assert len(self.released) < 3, "asked again and again"
            grant = GrantLease(
                "LLD-1", event.call, "lease-1", "key-1", self._vendor, Secret(SECRET), self._url, "m"
            )
            asyncio.get_running_loop().call_soon(self.model.grant, grant)
        elif isinstance(event, LeaseReleased):
            self.released.append(event)
            if event.refusal:
                raise Refused(event.refusal)  # otherwise the model asks for another key


@contextmanager
def worker(vendor: str, act: Handler) -> Iterator[tuple[Worker, asyncio.Runner]]:
    with provider(act) as url, asyncio.Runner() as runner:
        client = VENDORS[vendor]()
        try:
            yield Worker(vendor, url, client), runner
        finally:
            runner.run(close_clients(client))
            runner.run(asyncio.sleep(0.01))  # until the transports have closed, too


def ask(vendor: str, status: int, body: bytes, *headers: tuple[str, str]) -> tuple[ModelResponse, Worker]:
    async def act(incoming: HttpRequest, out: Connection) -> None:
        whole(out, status, body, *headers)

    with worker(vendor, act) as (found, runner):
        return runner.run(found.model.complete("draft 1", ModelRequest("drafter", "write"))), found


def changed(vendor: str, place: tuple[Any, ...], value: object) -> bytes:
    answer = json.loads(json.dumps(WHOLE[vendor]))
    inner = answer
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return json.dumps(answer).encode()


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_a_redirect_is_not_followed_and_the_key_stays(vendor: str) -> None:
    arrived: list[HttpRequest] = []

    async def elsewhere(incoming: HttpRequest, out: Connection) -> None:
        arrived.append(incoming)
        whole(out, 200, json.dumps(WHOLE[vendor]).encode())

    with provider(elsewhere) as target:

        async def act(incoming: HttpRequest, out: Connection) -> None:
            whole(out, 307, b"{}", ("location", f"{target}/v1/steal"))

        with worker(vendor, act) as (found, runner), pytest.raises((BadRequest, Refused)) as caught:
            runner.run(found.model.complete("draft 1", ModelRequest("drafter", "write")))
    assert arrived == []
    assert "redirect" in str(caught.value) and "127.0.0.1" in str(caught.value)


def test_a_key_echoed_as_text_or_as_the_models_name_is_masked(vendor: str) -> None:
    answer, found = ask(vendor, 200, changed(vendor, (MODEL_PLACES[vendor],), f"m-{SECRET}"))
    assert SECRET not in answer.model and SECRET not in repr(found.released)
    answer, _ = ask(vendor, 200, changed(vendor, TEXT_PLACES[vendor], f"the key is {SECRET}"))
    assert SECRET not in answer.text


def test_a_models_name_of_megabytes_is_cut(vendor: str) -> None:
    answer, found = ask(vendor, 200, changed(vendor, (MODEL_PLACES[vendor],), "m" * 5_000_000))
    assert len(answer.model) <= 200 and len(repr(found.released)) < 2000


@pytest.mark.parametrize("count", [10**400, -5, "many", 1e308, None, 2.5, True])
def test_an_invalid_token_count_counts_as_zero(vendor: str, count: object) -> None:
    body = changed(vendor, COUNT_PLACES[vendor], count)
    if vendor == "gemini" and not isinstance(count, int | None):
        with pytest.raises(Refused):  # google-genai reads no such response at all
            ask(vendor, 200, body)
        return
    assert 0 <= ask(vendor, 200, body)[0].usage.input_tokens < 10**9


@pytest.mark.parametrize("text", ["\ud800 half", "a\x00b", "\x1b]52;c;x\x07 clip"])
def test_text_that_cannot_be_stored_or_shown_is_made_storable(vendor: str, text: str) -> None:
    answer, _ = ask(vendor, 200, changed(vendor, TEXT_PLACES[vendor], f"# Title {text}"))
    answer.text.encode("utf-8")
    assert answer.text.startswith("# Title ") and not {"\x00", "\x1b", "\x07"} & set(answer.text)


def test_a_refusal_with_a_header_of_5000_digits_is_a_refusal(vendor: str) -> None:
    headers = [
        (name, "9" * 5000)
        for name in (
            "retry-after",
            "retry-after-ms",
            "x-ratelimit-limit-requests",
            "x-ratelimit-reset-requests",
        )
    ]
    headers += [
        (f"anthropic-ratelimit-requests-{name}", "9" * 5000) for name in ("limit", "remaining", "reset")
    ]
    with pytest.raises(Refused) as caught:
        ask(vendor, 429, b'{"error": {"message": "slow down"}}', *headers)
    assert caught.value.refusal.kind is RefusalKind.RATE_LIMITED


@pytest.mark.parametrize("status", [200, 400, 429, 500])
def test_a_response_nested_10_000_levels_deep_is_one_of_our_errors(vendor: str, status: int) -> None:
    # Finalizers of other tests' clients must not run at the bottom of the recursion, where they fail.
    gc.disable()
    try:
        with pytest.raises((Refused, BadRequest)):
            ask(vendor, status, b"[" * 10_000 + b"]" * 10_000)
    finally:
        gc.enable()


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"<html>", b'{"a": 1}', b'"text"', b"\xff\xfe"])
def test_an_unusable_response_is_one_of_our_errors(vendor: str, body: bytes) -> None:
    with pytest.raises((Refused, BadRequest)):
        ask(vendor, 200, body)


def test_an_error_in_a_response_with_status_200_is_read_as_that_error() -> None:
    body = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
    with pytest.raises(Refused) as caught:
        ask("openai", 200, json.dumps(body).encode())
    assert caught.value.refusal.kind is RefusalKind.RATE_LIMITED


def test_an_error_that_echoes_the_key_or_is_huge_is_masked_and_cut(vendor: str) -> None:
    body = {"error": {"message": f"bad {SECRET} " + "x" * 100_000, "type": "invalid_request_error"}}
    with pytest.raises(BadRequest) as caught:
        ask(vendor, 400, json.dumps(body).encode())
    assert SECRET not in str(caught.value) and len(str(caught.value)) < 2000
