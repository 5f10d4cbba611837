"""Warm-up calls that make a vendor's SDK build its caches before workers are forked.

An SDK builds most of what a call needs during its first call. In the fork server, that work is done once and shared by
all workers. No connection is opened: a mock transport returns a canned stream.
"""

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from agentos.core.errors import ModelError
from agentos.core.protocol.ports import LeasedKey, ModelRequest, Provider
from agentos.models.registry import PROVIDERS

BASE_URL = "http://warm-up.invalid"
HTTP_LIBRARIES = ("httpx2", "httpx")  # google-genai below 3 uses the older one
TEXT = "{}"
REQUESTS = (ModelRequest("drafter", TEXT), ModelRequest("reviewer", TEXT, '{"type": "object"}'))
_CHUNK = {"id": "", "object": "chat.completion.chunk", "created": 0, "model": ""}
_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {"id": "", "type": "message", "role": "assistant", "model": "", "content": [], "usage": _USAGE}
Stream = tuple[dict[str, Any], ...]


def canned_streams(text: str) -> dict[str, Stream]:
    """What each vendor's server sends for an answer with this text."""
    return {
        "gemini": (
            {
                "candidates": [
                    {"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": "STOP"}
                ],
                "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
                "modelVersion": "",
            },
        ),
        "anthropic": (
            {"type": "message_start", "message": _MESSAGE},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": _USAGE},
            {"type": "message_stop"},
        ),
        "openai": (
            {**_CHUNK, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]},
            {
                **_CHUNK,
                "choices": [],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            },
        ),
    }


STREAMS = canned_streams(TEXT)


def warm_up_imported_sdks() -> None:
    """Warm up each vendor whose client module has been imported."""
    for vendor in imported_vendors():
        warm_up_sdk(vendor)


def imported_vendors() -> list[str]:
    """The vendors whose client module has been imported."""
    return [vendor for vendor in STREAMS if f"agentos.models.{vendor}.client" in sys.modules]


def warm_up_sdk(vendor: str) -> bool:
    """Return whether the SDK accepted the canned response; if not, only each worker's first call is slower."""
    return bool(http_library(vendor))


def http_library(vendor: str) -> str:
    """The HTTP library that the vendor's SDK uses; empty if it accepts a canned response from none."""
    return next((library for library in HTTP_LIBRARIES if _accepts(vendor, library)), "")


def _accepts(vendor: str, library: str) -> bool:
    try:
        # Through anyio, because the SDKs' HTTP library loads its asyncio backend only inside a running loop.
        import anyio

        anyio.run(_complete_all, canned_provider(vendor, library, STREAMS[vendor]))
    except (ImportError, AttributeError, ModelError):
        return False
    return True


def canned_provider(vendor: str, library: str, stream: Stream) -> Provider:
    """The vendor's client with a transport that answers every call with this stream."""
    http = importlib.import_module(library)
    headers, body = {"content-type": "text/event-stream"}, event_stream(stream)
    return PROVIDERS[vendor](http.MockTransport(lambda _: http.Response(200, headers=headers, content=body)))


def event_stream(events: Sequence[dict[str, Any]]) -> bytes:
    """The events as server-sent events, named after their `type` if they have one."""
    names = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
    return "".join(
        f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, events, strict=True)
    ).encode()


async def _complete_all(provider: Provider) -> None:
    for request in REQUESTS:
        await provider.complete(request, LeasedKey("", "no-key", BASE_URL, "none"))
