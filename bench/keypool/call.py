"""One call in Gemini's format over a kept connection, with nothing but the standard library."""

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
class Heard:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def retry_after(self) -> float | None:
        """What a refusal asks to wait: RetryInfo's delay."""
        for detail in self.body.get("error", {}).get("details", []):
            if found := re.fullmatch(r"([\d.]+)s", str(detail.get("retryDelay", ""))):
                return float(found[1])
        return None


class Wire:
    """Idle connections are used again, the last one first."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "127.0.0.1", place.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, secret: str, prompt: str) -> Heard:
        reader, writer = self._idle.pop() if self._idle else await self._open()
        try:
            writer.write(self._request(secret, prompt))
            heard = await _read(reader)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return heard

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
            f"POST {PATH} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nx-goog-api-key: {secret}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> Heard:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = {name.casefold(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Heard(int(first.split()[1]), headers, json.loads(body))
