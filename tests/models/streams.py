"""Answers as event streams in the format of each vendor, and a worker that is granted every lease at once."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import ModelRequest, ModelResponse, OnPiece
from agentos.core.text.secrets import Secret
from agentos.http.connection import Connection, Handler
from agentos.models.leased import LeasedModel
from agentos.models.warmup import event_stream
from tests.gateway.scripted import provider
from tests.models.test_providers import VENDORS, close_clients

STOP = {"gemini": "STOP", "anthropic": "end_turn", "openai": "stop"}
LENGTH = {"gemini": "MAX_TOKENS", "anthropic": "max_tokens", "openai": "length"}
INPUT_TOKENS, OUTPUT_TOKENS = 70, 4000  # as the scripted servers count them


def text_event(vendor: str, text: str, model: str = "m") -> bytes:
    """One event with a piece of the answer."""
    chunks: dict[str, dict[str, Any]] = {
        "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]},
        "anthropic": {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": text},
        },
        "openai": {"id": "1", "model": model, "choices": [{"index": 0, "delta": {"content": text}}]},
    }
    return event_stream([chunks[vendor]])


def start_events(vendor: str, model: str = "m") -> bytes:
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
    message = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "usage": usage,
    }
    return event_stream([{"type": "message_start", "message": message}]) if vendor == "anthropic" else b""


def end_events(vendor: str, finish: str, model: str = "m") -> bytes:
    """The events that end an answer: why it ended, and what it cost."""
    ends: dict[str, list[dict[str, Any]]] = {
        "gemini": [
            {
                "candidates": [{"finishReason": finish}],
                "usageMetadata": {
                    "promptTokenCount": INPUT_TOKENS,
                    "candidatesTokenCount": OUTPUT_TOKENS - 1000,
                    "thoughtsTokenCount": 1000,
                },
                "modelVersion": model,
            }
        ],
        "anthropic": [
            {
                "type": "message_delta",
                "delta": {"stop_reason": finish},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            },
            {"type": "message_stop"},
        ],
        "openai": [
            {"id": "1", "model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            {
                "id": "1",
                "model": model,
                "choices": [],
                "usage": {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS},
            },
        ],
    }
    return event_stream(ends[vendor])


def whole_stream(vendor: str, texts: Sequence[str], finish: str, model: str = "m") -> bytes:
    pieces = [text_event(vendor, text, model) for text in texts]
    return b"".join([start_events(vendor, model), *pieces, end_events(vendor, finish, model)])


def send_events(out: Connection, body: bytes) -> None:
    out.begin(200, [("content-type", "text/event-stream"), ("content-length", str(len(body)))])
    out.put(body)
    out.finish()


class LeasedWorker:
    """A leased model with one key, whose coordinator grants every lease at once."""

    def __init__(self, vendor: str, url: str, role: RoleModel, call_timeout: float) -> None:
        self.client = VENDORS[vendor]()
        self.released: list[LeaseReleased] = []
        self.answers = 0
        """What the coordinator says the provider has answered; raised by one with every lease if `others_answer`."""
        self.others_answer = False
        self.leases_without_server = 0
        """How many leases name an address at which nobody listens."""
        self.model = LeasedModel(
            "LLD-1", (role,), {vendor: lambda: self.client}, self._on_event, {"": call_timeout}
        )
        self._vendor, self._url = vendor, url

    def _on_event(self, event: WorkerEvent) -> None:
        if isinstance(event, LeaseRequested):
            assert len(self.released) < 30, "asked again and again"
            self.answers += self.others_answer
            grant = GrantLease(
                "LLD-1",
                event.call,
                "lease-1",
                "key-1",
                self._vendor,
                Secret("scripted-server-key"),
                self._url if len(self.released) >= self.leases_without_server else "http://127.0.0.1:1",
                "m",
                None,
                self.answers,
            )
            asyncio.get_running_loop().call_soon(self.model.grant, grant)
        elif isinstance(event, LeaseReleased):
            self.released.append(event)


class Session:
    """A worker with its event loop."""

    def __init__(self, worker: LeasedWorker, runner: asyncio.Runner) -> None:
        self.worker = worker
        self._runner = runner

    def ask(self, request: ModelRequest, on_piece: OnPiece | None = None) -> ModelResponse:
        return self._runner.run(self.worker.model.complete("draft-1", request, on_piece))


@contextmanager
def leased_worker(
    vendor: str, handler: Handler, *, call_timeout: float = 30.0, **role: Any
) -> Iterator[Session]:
    model = RoleModel("drafter", (vendor,), ("m",), **role)
    with provider(handler) as url, asyncio.Runner() as runner:
        worker = LeasedWorker(vendor, url, model, call_timeout)
        try:
            yield Session(worker, runner)
        finally:
            runner.run(close_clients(worker.client))
            runner.run(asyncio.sleep(0.01))  # until the transports have closed, too


def sent_body(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    return found
