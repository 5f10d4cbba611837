"""Starts gateways in their own processes, and agents configured only by the variables they print."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
from google import genai
from google.genai import types

from tests.scenarios.harness import CompletedCommand, RunHarness, RunningCommand, wait_until

PROVIDERS = ("gemini", "anthropic", "openai")
MODELS = {"gemini": "gemini-2.5-pro", "anthropic": "claude-haiku-4-5", "openai": "gpt-5"}
PROMPT = "Say something about gateways."
UNENCRYPTED = {"verify": False}


@dataclass(frozen=True)
class RunningGateway:
    """A running gateway and the variables it printed."""

    running: RunningCommand
    url: str
    items: dict[str, dict[str, str]]

    @property
    def token(self) -> str:
        return next(value for name, value in self.agent.items() if name.endswith("_API_KEY"))

    @property
    def agent(self) -> dict[str, str]:
        return next(iter(self.items.values()))

    @property
    def stderr(self) -> str:
        return self.running.err

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.stderr)

    def wait(self) -> CompletedCommand:
        self.running.signal(signal.SIGINT)
        return self.running.wait(10)

    def connect(self) -> socket.socket:
        address = urlsplit(self.url)
        return socket.create_connection((address.hostname, address.port), timeout=10)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> "Reply":
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method, headers=named)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Reply(answer.status, dict(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, dict(error.headers), error.read())

    def ask(self, **headers: str) -> "Reply":
        path = f"/gemini/v1beta/models/{MODELS['gemini']}:generateContent"
        all_headers = {"x_goog_api_key": self.token} | headers
        return self.call("POST", path, gemini_body(), **all_headers)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def gemini_body(text: str = PROMPT) -> bytes:
    return json.dumps({"contents": [{"parts": [{"text": text}]}]}).encode()


def credentials(url: str, keys: tuple[str, ...], provider: str) -> dict[str, Any]:
    """Variables that assign the keys to one provider; those that the harness sets for Gemini are cleared."""
    found = {f"GEMINI_API_KEY_{number}": "" for number in range(1, len(keys) + 1)}
    for number, key in enumerate(keys, 1):
        found[f"{provider.upper()}_API_KEY_{number}"] = key
        found[f"{provider.upper()}_BASE_URL_{number}"] = url
    return found


@contextmanager
def gateway(
    harness: RunHarness, *flags: object, provider: str = "gemini", url: str = ""
) -> Iterator[RunningGateway]:
    """Starts a gateway with the harness's keys, for its last server or for the given URL."""
    variables: dict[str, Any] = credentials(url or harness.urls[-1], harness.keys, provider)
    running = harness.start("gateway", "--format", "json", *flags, program="agentos", **variables)
    wait_until(lambda: "\n" in running.out or running.process.poll() is not None)
    assert running.out, running.err
    record = json.loads(running.out)
    yield RunningGateway(running, record["url"], record["items"])
    if running.process.poll() is None:
        running.signal(signal.SIGINT)
        running.wait(10)


# Agents: the official SDKs, configured by the variables alone


def with_gemini(agent: dict[str, str]) -> genai.Client:
    options = types.HttpOptions(
        base_url=agent["GOOGLE_GEMINI_BASE_URL"],
        timeout=20_000,
        client_args=UNENCRYPTED,
        async_client_args=UNENCRYPTED,
    )
    return genai.Client(api_key=agent["GEMINI_API_KEY"], http_options=options)


def with_anthropic(agent: dict[str, str]) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key=agent["ANTHROPIC_API_KEY"],
        base_url=agent["ANTHROPIC_BASE_URL"],
        max_retries=0,
        timeout=20,
        http_client=anthropic.DefaultHttpxClient(verify=False),
    )


def with_openai(agent: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=agent["OPENAI_API_KEY"],
        base_url=agent["OPENAI_BASE_URL"],
        max_retries=0,
        timeout=20,
        http_client=openai.DefaultHttpxClient(verify=False),
    )


def ask_whole(provider: str, agent: dict[str, str]) -> str:
    model = MODELS[provider]
    if provider == "gemini":
        with with_gemini(agent) as gemini:
            return gemini.models.generate_content(model=model, contents=PROMPT).text or ""
    if provider == "anthropic":
        with with_anthropic(agent) as claude:
            message = claude.messages.create(
                model=model, max_tokens=500, messages=[{"role": "user", "content": PROMPT}]
            )
            return "".join(block.text for block in message.content if block.type == "text")
    with with_openai(agent) as gpt:
        completion = gpt.chat.completions.create(model=model, messages=[{"role": "user", "content": PROMPT}])
        return completion.choices[0].message.content or ""


def ask_streamed(provider: str, agent: dict[str, str]) -> str:
    model = MODELS[provider]
    if provider == "gemini":
        with with_gemini(agent) as gemini:
            parts = gemini.models.generate_content_stream(model=model, contents=PROMPT)
            return "".join(part.text or "" for part in parts)
    if provider == "anthropic":
        with (
            with_anthropic(agent) as claude,
            claude.messages.stream(
                model=model, max_tokens=500, messages=[{"role": "user", "content": PROMPT}]
            ) as stream,
        ):
            return "".join(stream.text_stream)
    with with_openai(agent) as gpt:
        chunks = gpt.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": PROMPT}],
            stream=True,
            stream_options={"include_usage": True},
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
