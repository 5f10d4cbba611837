"""A model server for agents: it calls each tool once, then writes text, and counts what it has answered."""

import asyncio
import hashlib
import json
import re
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentos.http.connection import Connection, HttpRequest
from agentos.models.warmup import event_stream
from tests.audits.tree import ROOT
from tests.gateway.scripted import provider, whole

LATENCY = 0.03  # seconds
FIRST_SERIAL = 100
SETTLE = "/settle"
PRICES = tomllib.loads((ROOT / "src/agentos/config/prices.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call as the server has it in its own log. `output_tokens` is different for every call, so it tells them apart."""

    prompt: str
    topic: str
    arrived_at: float
    input_tokens: int
    output_tokens: int
    model: str

    @property
    def cost(self) -> float:
        """US dollars."""
        price = PRICES[self.model]
        return float(self.input_tokens * price["input"] + self.output_tokens * price["output"]) / 1e6


@dataclass(slots=True)
class CountingModel:
    """Speaks Gemini's format. The answer depends on the prompt alone."""

    url: str = ""
    log: list[AnsweredCall] = field(default_factory=list)
    """The calls that were answered; a client that is gone when its answer is ready gets none."""
    arrived: int = 0

    @classmethod
    @contextmanager
    def serving(cls) -> "Iterator[CountingModel]":
        model = cls()
        with provider(model.handle) as url:
            model.url = url
            yield model

    async def handle(self, request: HttpRequest, out: Connection) -> None:
        if request.target == SETTLE:
            await asyncio.sleep(LATENCY)
            return whole(out, 200, b"")
        self.arrived += 1
        arrived_at = time.monotonic()
        body = json.loads(request.body)
        prompt = hashlib.sha256(json.dumps([body["contents"], body.get("tools")]).encode()).hexdigest()
        await asyncio.sleep(LATENCY)
        topic = _topic(body)
        part = _answer(body, prompt, topic)
        model = request.target.partition("/models/")[2].partition(":")[0]
        answered = AnsweredCall(
            prompt, topic, arrived_at, len(request.body) // 4, FIRST_SERIAL + len(self.log), model
        )
        self.log.append(answered)
        chunk = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": answered.input_tokens,
                "candidatesTokenCount": answered.output_tokens,
            },
            "modelVersion": "counting",
        }
        events = event_stream([chunk])
        out.begin(200, [("content-type", "text/event-stream"), ("content-length", str(len(events)))])
        out.put(events)
        out.finish()

    def settle(self) -> None:
        """Return once every call that was sent before has arrived: requests are taken in their order."""
        with urllib.request.urlopen(f"{self.url}{SETTLE}", timeout=60):
            pass

    @property
    def answered(self) -> Counter[str]:
        """Number of answers per prompt, keyed by the hash of the prompt."""
        return Counter(call.prompt for call in self.log)


def _topic(body: dict[str, Any]) -> str:
    """The item that a prompt is about; answers name it too, so that prompts made of answers have it."""
    found = re.search(r"Topic \d+", json.dumps(body["contents"]))
    return found[0] if found else ""


def _answer(body: dict[str, Any], prompt: str, topic: str) -> dict[str, Any]:
    called = {
        part["functionResponse"]["name"]
        for content in body["contents"]
        for part in content.get("parts", ())
        if "functionResponse" in part
    }
    tools = [tool for group in body.get("tools") or () for tool in group["functionDeclarations"]]
    for tool in tools:
        if tool["name"] not in called:
            schema = tool["parameters_json_schema"]
            values = {name: _value(each, prompt) for name, each in schema["properties"].items()}
            return {"functionCall": {"name": tool["name"], "args": values}}
    return {"text": f"Written as {prompt[:12]} on {topic}."}


def _value(schema: dict[str, Any], prompt: str) -> object:
    if choices := schema.get("enum"):
        return choices[int(prompt[0], 16) % len(choices)]
    return f"value {prompt[:6]}"
