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
MAX_TOKEN_COUNT = 10**9  # no call comes near it; a larger count is a lie

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
        except RecursionError as error:
            refusal = Refusal(RefusalKind.PROVIDER_ERROR, "no response: nested too deeply to be read")
            raise CallRefused(refusal) from error
        except self.failures as error:
            if redirect := _redirect_behind(error):
                raise BadRequest(str(redirect)) from error
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
    """The value if it is a positive integer that can be a number of tokens, else 0."""
    return value if type(value) is int and 0 < value <= MAX_TOKEN_COUNT else 0


class ResponseTooLarge(ValueError):
    """The response is larger than anything a model writes."""


class RedirectRefused(ValueError):
    """The server sent a model call elsewhere. Following it would hand the key to another host."""


async def refuse_redirect(response: Any) -> None:
    """Response hook: model calls follow no redirect, neither to another host nor from https to http."""
    if not 300 <= response.status_code < 400:
        return
    target = response.headers.get("location", "")[:200]
    await response.aclose()
    raise RedirectRefused(
        f"{response.request.url.host} answered with a redirect ({response.status_code}) to {target or '?'}: model calls "
        "follow none, so that the key stays where you sent it; set the base URL that the provider gives"
    )


def _redirect_behind(error: BaseException | None) -> RedirectRefused | None:
    """The refused redirect that an SDK's own exception hides."""
    while error is not None and not isinstance(error, RedirectRefused):
        error = error.__cause__ or error.__context__
    return error


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


RESPONSE_HOOKS: dict[str, Any] = {"response": [refuse_redirect, read_bounded]}
