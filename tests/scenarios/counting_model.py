"""A model server for agents: it calls each tool once, then writes text, and counts what it has answered."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentos.http.connection import Connection, HttpRequest
from agentos.models.warmup import event_stream
from tests.gateway.scripted import provider

LATENCY = 0.03  # seconds


@dataclass(slots=True)
class CountingModel:
    """Speaks Gemini's format. The answer depends on the prompt alone."""

    url: str = ""
    answered: Counter[str] = field(default_factory=Counter)
    """How often each prompt was answered, by its hash."""
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Input and output tokens of each prompt."""
    arrived: int = 0

    @classmethod
    @contextmanager
    def serving(cls) -> "Iterator[CountingModel]":
        model = cls()
        with provider(model.handle) as url:
            model.url = url
            yield model

    async def handle(self, request: HttpRequest, out: Connection) -> None:
        self.arrived += 1
        body = json.loads(request.body)
        prompt = hashlib.sha256(json.dumps([body["contents"], body.get("tools")]).encode()).hexdigest()
        await asyncio.sleep(LATENCY)
        part = _answer(body, prompt)
        usage = (len(request.body) // 4, len(json.dumps(part)) // 4 + 1)
        self.tokens[prompt] = usage
        self.answered[prompt] += 1
        chunk = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1]},
            "modelVersion": "counting",
        }
        events = event_stream([chunk])
        out.begin(200, [("content-type", "text/event-stream"), ("content-length", str(len(events)))])
        out.put(events)
        out.finish()

    def total(self, *, once: bool) -> tuple[int, int]:
        """Tokens of all answers; `once`: each prompt counts once, however often it was answered."""
        counts = [(self.tokens[prompt], 1 if once else number) for prompt, number in self.answered.items()]
        return sum(usage[0] * n for usage, n in counts), sum(usage[1] * n for usage, n in counts)


def _answer(body: dict[str, Any], prompt: str) -> dict[str, Any]:
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
    return {"text": f"Written as {prompt[:12]}."}


def _value(schema: dict[str, Any], prompt: str) -> object:
    if choices := schema.get("enum"):
        return choices[int(prompt[0], 16) % len(choices)]
    return f"value {prompt[:6]}"
