"""Base of the vendors' clients: bounded, streamed answers with a timeout between tokens, and translated errors."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, TypeVar

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, OnPiece, OnProgress
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.values import split_url
from agentos.models.partial_answer import PartialAnswer

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# Limits one event of a stream, because an SDK that waits for its end copies it again with every chunk.
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_BROKEN_CONNECTIONS = (
    10  # in a row, for one call, while others are answered; a server that restarts breaks a few
)
PLACEHOLDER_KEY = "given-per-call"

SdkClient = TypeVar("SdkClient")
_UNSUPPORTED_LIMITS = ("maxItems", "minItems", "maxLength", "minLength")


class VendorClient(Generic[SdkClient]):
    """Calls a vendor's API through its SDK. One SDK client per base URL serves all keys.

    `complete` returns a response, or raises CallRefused (try another key, or later) or BadRequest (never retry).
    Answers are streamed, so that a slow one is cut only when no token has arrived for the key's `call_timeout`.
    `transport` replaces the network. A subclass says how to connect, how to read the stream and what errors mean.
    """

    def __init__(self, transport: Any = None) -> None:
        self._transport = transport
        self._clients: dict[str | None, SdkClient] = {}

    async def complete(
        self,
        request: ModelRequest,
        key: LeasedKey,
        on_progress: OnProgress | None = None,
        on_piece: OnPiece | None = None,
    ) -> ModelResponse:
        answer = PartialAnswer(request.size, on_piece=on_piece)
        try:
            await self._read_all(request, key, answer, on_progress)
            return answer.response(key, may_be_empty=bool(request.turns))
        except (BadRequest, CallRefused):
            raise
        except TimeoutError as error:
            raise CallRefused(Refusal(RefusalKind.CUT, _cut_reason(answer, key))) from error
        except RecursionError as error:
            refusal = Refusal(RefusalKind.PROVIDER_ERROR, "no response: nested too deeply to be read")
            raise CallRefused(refusal) from error
        except Exception as error:
            # Not every error means a response: the SDKs do not wrap all errors of their HTTP library, and a body that is
            # not an answer, such as a proxy's error page, fails wherever a field is missing.
            if unacceptable := _unacceptable_behind(error):
                raise BadRequest(f"{_host(key)} {unacceptable}") from error
            if (translated := self._translate(error)) is not None:
                raise translated from error
            reason = connection_problem(error, _host(key))
            raise CallRefused(
                Refusal(RefusalKind.PROVIDER_ERROR, reason),
                blame_after=None if _is_unreachable(error) else MAX_BROKEN_CONNECTIONS,
            ) from error

    async def _read_all(
        self, request: ModelRequest, key: LeasedKey, answer: PartialAnswer, on_progress: OnProgress | None
    ) -> None:
        if key.base_url not in self._clients:
            self._clients[key.base_url] = self._connect(key.base_url)
        pieces = self._read(self._clients[key.base_url], request, key, answer)
        now = asyncio.get_running_loop().time
        async with asyncio.timeout(key.call_timeout) as patience, contextlib.aclosing(pieces):
            async for _ in pieces:
                patience.reschedule(now() + key.call_timeout)
                if on_progress:
                    on_progress(answer.usage())

    def _connect(self, base_url: str | None) -> SdkClient:
        raise NotImplementedError

    def _read(
        self, client: SdkClient, request: ModelRequest, key: LeasedKey, answer: PartialAnswer
    ) -> AsyncGenerator[None]:
        """Send the request and add the response to the answer, piece by piece."""
        raise NotImplementedError

    def _translate(self, error: Exception) -> CallRefused | BadRequest | None:
        """Translate an error response into one of our errors; None if there was no response."""
        raise NotImplementedError


def error_for(refusal: Refusal | None, message: str) -> CallRefused | BadRequest:
    return CallRefused(refusal) if refusal else BadRequest(message)


def lower_case(headers: Any) -> dict[str, str]:
    return {str(name).casefold(): str(value) for name, value in headers.items()}


def whole_body(response: Any) -> dict[str, Any] | None:
    """The JSON object from a server that does not stream; None if the response is a stream of events."""
    if is_event_stream(response) or not response.content.lstrip().startswith((b"{", b"[")):
        return None
    body = response.json()
    if not isinstance(body, dict):
        raise TypeError(f"expected a JSON object, found {type(body).__name__}")
    return body


def is_event_stream(response: Any) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def _cut_reason(answer: PartialAnswer, key: LeasedKey) -> str:
    written = answer.usage().output_tokens
    return f"no token for {key.call_timeout:g} s" + (f", after {written:,} tokens" if written else "")


class UnacceptableResponse(ValueError):
    """A response that neither another key nor a later call would change: a redirect, or more than any model writes."""


async def refuse_redirect(response: Any) -> None:
    """Response hook: model calls follow no redirect, which would hand the key to another host."""
    if not 300 <= response.status_code < 400:
        return
    target = response.headers.get("location", "")[:200]
    await response.aclose()
    raise UnacceptableResponse(
        f"answered with a redirect ({response.status_code}) to {target or '?'}: model calls "
        "follow none, so that the key reaches no other host; set the base URL that the provider documents"
    )


# The codes of OpenSSL for certificates whose authority is not in the trust store.
UNKNOWN_AUTHORITY = (18, 19, 20, 21)


def connection_problem(error: BaseException, host: str) -> str:
    """What went wrong on the way to a host, judged by the type of the original error, not by its message."""
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                problem = f"the certificate of {host} is not trusted: {cause.verify_message}"
                is_private = cause.verify_code in UNKNOWN_AUTHORITY
                fix = "; for a private CA, set SSL_CERT_FILE to its certificate" if is_private else ""
                return problem + fix
            case ssl.SSLError():
                return f"no TLS connection to {host}: {cause.reason or cause}"
            case socket.gaierror():
                return f"{host} cannot be resolved: {cause.strerror}"
            case ConnectionRefusedError():
                return f"{host} refused the connection"
    kind = type(error).__name__
    return (
        f"no response from {host} in time ({kind})"
        if "Timeout" in kind
        else f"no response from {host}: {kind}"
    )


def _is_unreachable(error: BaseException) -> bool:
    """Whether no connection to the server was made."""
    return any(isinstance(cause, socket.gaierror | ConnectionRefusedError) for cause in _causes(error))


def _causes(error: BaseException) -> list[BaseException]:
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes:
        causes.append(cause)
    return causes


def _host(key: LeasedKey) -> str:
    parts = split_url(key.base_url or "")
    return parts.hostname if parts and parts.hostname else "the provider"


def _unacceptable_behind(error: BaseException | None) -> UnacceptableResponse | None:
    """Our own error behind an SDK's exception, if there is one."""
    while error is not None and not isinstance(error, UnacceptableResponse):
        error = error.__cause__ or error.__context__
    return error


async def bound_body(response: Any) -> None:
    """Response hook for the SDKs' HTTP clients: reads at most MAX_RESPONSE_BYTES of a body.

    The limit applies to the decompressed body, so that a small one cannot expand endlessly; in a stream, each event has
    a limit too. The SDK reads a stream of events itself; anything else is read here.
    """
    read = response.aiter_bytes
    is_stream = is_event_stream(response)

    async def bounded(*sizes: int) -> AsyncIterator[bytes]:
        size = event_size = 0
        async for chunk in read(*sizes):
            size += len(chunk)
            end = max(chunk.rfind(blank_line) for blank_line in (b"\n\n", b"\r\r", b"\r\n\r\n"))
            event_size = event_size + len(chunk) if end < 0 else len(chunk) - end
            if size > MAX_RESPONSE_BYTES or (is_stream and event_size > MAX_EVENT_BYTES):
                await response.aclose()
                what, most = (
                    ("a response", MAX_RESPONSE_BYTES)
                    if size > MAX_RESPONSE_BYTES
                    else ("an event", MAX_EVENT_BYTES)
                )
                raise UnacceptableResponse(
                    f"sent {what} larger than {most // 2**20} MiB, which no model writes: is the base URL right?"
                )
            yield chunk

    if is_stream:
        response.aiter_bytes = bounded
    else:
        # The HTTP libraries keep the body that is read here and do not read it again.
        response._content = b"".join([chunk async for chunk in bounded()])


RESPONSE_HOOKS: dict[str, Any] = {"response": [refuse_redirect, bound_body]}


def closed(schema: Any) -> Any:
    """The schema with additional properties forbidden in every object, as strict structured output requires."""
    if isinstance(schema, dict):
        inner = {name: closed(value) for name, value in schema.items()}
        return {**inner, "additionalProperties": False} if schema.get("type") == "object" else inner
    return [closed(part) for part in schema] if isinstance(schema, list) else schema


def without_limits(schema: Any) -> Any:
    """The schema with size limits moved to the descriptions, for a vendor that refuses them as keywords."""
    if isinstance(schema, list):
        return [without_limits(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: without_limits(value) for name, value in schema.items() if name not in _UNSUPPORTED_LIMITS}
    if "maxItems" in schema and schema.get("type") == "array":
        kept["description"] = f"{kept.get('description', '')} At most {schema['maxItems']} entries.".strip()
    return kept
