"""Runs the real server on its own event loop beside the test."""

import asyncio
import contextlib
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google import genai
from google.genai import types

from agentos.offline.config import OfflineKey, ServerConfig
from agentos.offline.faults import Fault, FaultKind, Match
from agentos.offline.server import serve

KEYS = (OfflineKey("key-1", "secret-one"), OfflineKey("key-2", "secret-two"))
UNENCRYPTED = {"verify": False}
ISSUE = (
    "<issue>\n# Show rows\n\nPeople cannot see rows.\n\n## Requirements\n\n- The page shows 3 rows.\n</issue>"
)


@dataclass(frozen=True)
class Running:
    url: str

    @cached_property
    def client(self) -> genai.Client:
        """Created on demand and without TLS certificates: loading them takes longer than most tests."""
        options = types.HttpOptions(
            base_url=self.url, timeout=5000, client_args=UNENCRYPTED, async_client_args=UNENCRYPTED
        )
        return genai.Client(api_key=KEYS[0].secret, http_options=options)

    def close(self) -> None:
        if "client" in vars(self):
            self.client.close()

    def ask(self, text: str = ISSUE, secret: str = KEYS[0].secret) -> types.GenerateContentResponse:
        options = types.HttpOptions(headers={"x-goog-api-key": secret})
        config = types.GenerateContentConfig(http_options=options)
        return self.client.models.generate_content(model="gemini-2.5-pro", contents=text, config=config)

    def review(self, text: str) -> str:
        config = types.GenerateContentConfig(response_mime_type="application/json")
        answer = self.client.models.generate_content(model="gemini-2.5-pro", contents=text, config=config)
        return answer.text or ""

    def ledger(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("GET", "/_offline/ledger"))
        return found

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: bytes = answer.read()
        return found

    def refused(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        try:
            self.call(method, path, body, **headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 200


@contextmanager
def running(config: ServerConfig | None = None) -> Iterator[Running]:
    up: queue.Queue[tuple[str, Callable[[], object]]] = queue.Queue()

    def ready(url: str) -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        up.put((url, lambda: loop.call_soon_threadsafe(task.cancel)))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(serve(config or ServerConfig(), KEYS, ready))

    thread = threading.Thread(target=run)
    thread.start()
    url, stop = up.get(timeout=5)
    try:
        with contextlib.closing(Running(url)) as server:
            yield server
    finally:
        stop()
        thread.join(5)


@contextmanager
def failing(kind: FaultKind, *, times: int | None = 1, **shape: Any) -> Iterator[Running]:
    with running(ServerConfig(faults=(Fault(kind, Match(times=times), **shape),))) as server:
        yield server
