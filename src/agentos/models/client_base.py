"""Base of the vendors' clients: bounded responses, and errors translated to the two that callers handle."""

import asyncio
from typing import Any, ClassVar, Generic, TypeVar

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse
from agentos.core.ratelimit.refusals import Refusal, RefusalKind

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# For a whole call: a body may arrive so slowly that no single read ever times out.
MAX_CALL_SECONDS = 600.0
READ_TIMEOUT = 300.0  # seconds
PLACEHOLDER_KEY = "given-per-call"

SdkClient = TypeVar("SdkClient")


class VendorClient(Generic[SdkClient]):
    """Calls a vendor's API through its SDK. One SDK client per base URL serves all keys.

    `complete` returns a response, or raises CallRefused (try another key, or later) or BadRequest (never retry).
    `transport` replaces the network. A subclass says how to connect and call, and which exceptions of its SDK
    mean that there was no valid response.
    """

    failures: ClassVar[tuple[type[Exception], ...]] = (Exception,)

    def __init__(self, max_seconds: float = MAX_CALL_SECONDS, transport: Any = None) -> None:
        self._max_seconds = max_seconds
        self._transport = transport
        self._clients: dict[str | None, SdkClient] = {}

    async def complete(self, request: ModelRequest, key: LeasedKey) -> ModelResponse:
        try:
            if key.base_url not in self._clients:
                self._clients[key.base_url] = self._connect(key.base_url)
            async with asyncio.timeout(self._max_seconds):
                return await self._call(self._clients[key.base_url], request, key)
        except (BadRequest, CallRefused):
            raise
        except self.failures as error:
            if (translated := self._translate(error)) is not None:
                raise translated from error
            reason = f"no response: {type(error).__name__}"
            raise CallRefused(Refusal(RefusalKind.PROVIDER_ERROR, reason)) from error

    def _connect(self, base_url: str | None) -> SdkClient:
        raise NotImplementedError

    async def _call(self, client: SdkClient, request: ModelRequest, key: LeasedKey) -> ModelResponse:
        raise NotImplementedError

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        """An error response as one of our errors; None if there was no response."""
        raise NotImplementedError


def error_for(refusal: Refusal | None, message: str) -> CallRefused | BadRequest:
    return CallRefused(refusal) if refusal else BadRequest(message)


def lower_case(headers: Any) -> dict[str, str]:
    return {str(name).casefold(): str(value) for name, value in headers.items()}


def checked_text(value: object) -> str:
    """The SDKs do not validate responses: what should be text may be anything."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def positive_int(value: object) -> int:
    """The value if it is a positive integer, else 0."""
    return value if type(value) is int and value > 0 else 0


class ResponseTooLarge(ValueError):
    """The response is larger than anything a model writes."""


async def read_bounded(response: Any) -> None:
    """Response hook for the SDKs' HTTP clients: reads the body, up to MAX_RESPONSE_BYTES.

    The limit applies to the decompressed body, so that a small one cannot expand without end.
    """
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            await response.aclose()
            raise ResponseTooLarge(f"the response is larger than {MAX_RESPONSE_BYTES:,} bytes")
        chunks.append(chunk)
    # The HTTP libraries keep a body that was read here, and do not read it again.
    response._content = b"".join(chunks)


RESPONSE_HOOKS: dict[str, Any] = {"response": [read_bounded]}
