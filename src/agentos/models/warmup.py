"""Warm-up calls that make a vendor's SDK build its caches before workers are forked.

An SDK builds most of what a call needs at its first call. Made in the fork server, that work is done once and shared
by all workers. No connection is opened: a mock transport returns a canned response.
"""

import sys
from typing import Any

from agentos.core.errors import ModelError
from agentos.core.protocol.ports import LeasedKey, ModelRequest, Provider
from agentos.models.registry import PROVIDERS

BASE_URL = "http://warm-up.invalid"
TEXT = "{}"
REQUESTS = (ModelRequest("drafter", TEXT), ModelRequest("reviewer", TEXT, '{"type": "object"}'))
RESPONSES: dict[str, dict[str, Any]] = {
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


def warm_up_imported_sdks() -> None:
    """Warm up each vendor whose client module has been imported."""
    for vendor in RESPONSES:
        if f"agentos.models.{vendor}.client" in sys.modules:
            warm_up_sdk(vendor)


def warm_up_sdk(vendor: str) -> bool:
    """Whether the SDK accepted the canned response; if not, each worker's first call is slower, nothing else."""
    try:
        # Through anyio, because the SDKs' HTTP library loads its asyncio backend only inside a running loop.
        import anyio
        import httpx2

        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=RESPONSES[vendor]))
        anyio.run(_complete_all, PROVIDERS[vendor](transport))
    except (ImportError, AttributeError, ModelError):
        return False
    return True


async def _complete_all(provider: Provider) -> None:
    for request in REQUESTS:
        await provider.complete(request, LeasedKey("", "no-key", BASE_URL, "none"))
