"""A minimal Gemini client with keep-alive connections; standard library only."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATH = "/v1beta/models/offline-rules-1:generateContent"


@dataclass(frozen=True, slots=True)
class GeminiResponse:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def retry_after(self) -> float | None:
        """The delay that a refusal asks for (RetryInfo)."""
        for detail in self.body.get("error", {}).get("details", []):
            if found := re.fullmatch(r"([\d.]+)s", str(detail.get("retryDelay", ""))):
                return float(found[1])
        return None


class GeminiConnections:
    """Reuses idle connections, the most recent first."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._path = parts.path + PATH
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, secret: str, prompt: str) -> GeminiResponse:
        reader, writer = self._idle.pop() if self._idle else await self._open()
        try:
            writer.write(self._request(secret, prompt))
            response = await _read(reader)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return response

    async def close(self) -> None:
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)

    def _request(self, secret: str, prompt: str) -> bytes:
        body = json.dumps({"contents": [{"role": "user", "parts": [{"text": prompt}]}]}).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nx-goog-api-key: {secret}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> GeminiResponse:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = {name.casefold(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return GeminiResponse(int(first.split()[1]), headers, json.loads(body))
