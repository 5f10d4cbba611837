"""The model server of the benchmark over real HTTP: it must limit exactly as the shape says, whoever sends."""

import asyncio
import json

import pytest
from bench.keypool.call import GeminiConnections, GeminiResponse
from bench.keypool.shape_server import Counts, served_shape

CALLS = 40


def _send(url: str, secret: str, calls: int, text: str = "") -> list[GeminiResponse]:
    async def send_all() -> list[GeminiResponse]:
        connections = GeminiConnections(url)
        try:
            return await asyncio.gather(
                *(connections.send(secret, f"call 0-{call} {text}") for call in range(calls))
            )
        finally:
            await connections.close()

    return asyncio.run(send_all())


def test_it_admits_what_the_limit_of_each_key_allows_and_says_how_long_to_wait() -> None:
    with served_shape("sliding", 2.0, CALLS) as server:
        first = _send(server.url, server.secrets[0], 13)
        other = _send(server.url, server.secrets[1], 1)
        counts = server.counts()
    assert sorted(answer.status for answer in (*first, *other)) == [200] * 11 + [429] * 3
    assert counts == Counts(admitted=11, refused=3)
    for refused in (answer for answer in first if answer.status == 429):
        assert 10 < (refused.retry_after or 0) <= 20


@pytest.mark.parametrize(("shape", "hint"), [("no-hint", None), ("whole-seconds", True)])
def test_it_gives_the_hint_of_the_shape(shape: str, hint: bool | None) -> None:
    with served_shape(shape, 2.0, CALLS) as server:
        refused = [answer for answer in _send(server.url, server.secrets[0], 12) if answer.status == 429]
    assert len(refused) == 2
    for answer in refused:
        assert (
            (answer.retry_after is None)
            if hint is None
            else answer.retry_after == int(answer.retry_after or 0)
        )


def test_it_refuses_what_is_over_the_calls_in_flight() -> None:
    with served_shape("concurrency", 6.0, CALLS) as server:
        answers = _send(server.url, server.secrets[0], 5)
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
    assert {answer.retry_after for answer in answers if answer.status == 429} == {6.0}


def test_it_answers_with_the_tokens_of_the_load() -> None:
    with served_shape("requests-and-tokens", 1.0, CALLS) as server:
        answers = _send(server.url, server.secrets[0], 3)
    counted = [answer.body["usageMetadata"]["totalTokenCount"] for answer in answers]
    assert all(200 <= tokens <= 800 for tokens in counted) and len(set(counted)) > 1, json.dumps(counted)
