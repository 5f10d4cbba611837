"""Calls the offline server through the SDKs of Anthropic and OpenAI, without TLS certificates, which are slow to load."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any, TypeVar

import anthropic
import openai
from openai.types.chat import ChatCompletion

from agentos.offline.faults import FaultKind

from .serving import ISSUE, KEYS, Running

T = TypeVar("T")
SECRET = KEYS[0].secret
SCHEMA: dict[str, Any] = json.loads(
    (resources.files("agentos.workflows") / "prompts/verdict.schema.json").read_text("utf-8")
)


def with_anthropic(
    server: Running, act: Callable[[anthropic.AsyncAnthropic], Awaitable[T]], secret: str = SECRET
) -> T:
    async def run() -> T:
        wire = anthropic.DefaultAsyncHttpxClient(verify=False)
        async with anthropic.AsyncAnthropic(
            api_key=secret, base_url=server.url, max_retries=0, timeout=5, http_client=wire
        ) as client:
            return await act(client)

    return asyncio.run(run())


def with_openai(
    server: Running, act: Callable[[openai.AsyncOpenAI], Awaitable[T]], secret: str = SECRET
) -> T:
    async def run() -> T:
        wire = openai.DefaultAsyncHttpxClient(verify=False)
        async with openai.AsyncOpenAI(
            api_key=secret, base_url=f"{server.url}/v1", max_retries=0, timeout=5, http_client=wire
        ) as client:
            return await act(client)

    return asyncio.run(run())


async def message(client: anthropic.AsyncAnthropic, **more: Any) -> anthropic.types.Message:
    asked: dict[str, Any] = {"model": "claude-any", "max_tokens": 4000} | more
    found = await client.messages.create(messages=[{"role": "user", "content": ISSUE}], **asked)
    assert isinstance(found, anthropic.types.Message)
    return found


async def completion(client: openai.AsyncOpenAI, **more: Any) -> ChatCompletion:
    asked: dict[str, Any] = {"model": "gpt-any"} | more
    found = await client.chat.completions.create(messages=[{"role": "user", "content": ISSUE}], **asked)
    assert isinstance(found, ChatCompletion)
    return found


def script(server: Running, kind: FaultKind, **shape: object) -> None:
    server.call("POST", "/_offline/faults", json.dumps({"kind": kind, **shape}).encode())
