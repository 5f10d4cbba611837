"""Asks every vendor that is loaded once, when it is imported; nobody is there to hear it.

An SDK builds most of what a call needs at its first call. Done before workers are forked it is done once, and shared by
all of them. No connection is made: the question ends where the network would begin, and a prepared answer comes back.
"""

import functools
import sys
from typing import Any

from agentos.core.errors import ModelError
from agentos.core.protocol.ports import LeasedKey, ModelRequest, Provider
from agentos.models.registry import PROVIDERS

NOWHERE = "http://rehearsal.invalid"
TEXT = "{}"
QUESTIONS = (ModelRequest("drafter", TEXT), ModelRequest("reviewer", TEXT, '{"type": "object"}'))
ANSWERS: dict[str, dict[str, Any]] = {
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": TEXT}], "role": "model"}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "",
    },
    "anthropic": {
        "id": "",
        "type": "message",
        "role": "assistant",
        "model": "",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "openai": {
        "id": "",
        "object": "chat.completion",
        "created": 0,
        "model": "",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    },
}


def warm_up(vendor: str) -> bool:
    """Whether it came to an answer; where it did not, each worker's first call does what is missing."""
    try:
        # Through anyio, since the SDKs' HTTP library loads its half for asyncio only when something runs.
        import anyio
        import httpx2

        answer = functools.partial(_answer, httpx2.Response, vendor)
        provider = PROVIDERS[vendor](httpx2.MockTransport(answer))
        anyio.run(_ask, provider)
    except (ImportError, AttributeError, ModelError):
        return False
    return True


async def _ask(provider: Provider) -> None:
    for question in QUESTIONS:
        await provider.complete(question, LeasedKey("", "nobody's", NOWHERE, "none"))


def _answer(response: Any, vendor: str, request: Any) -> Any:
    return response(200, json=ANSWERS[vendor])


for _vendor in ANSWERS:
    if f"agentos.models.{_vendor}.client" in sys.modules:
        warm_up(_vendor)
