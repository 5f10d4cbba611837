"""Forwards one call to its provider, with one key after another until one of them gets a response."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentos.core.protocol import events
from agentos.core.protocol.ports import Clock
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import add_costs
from agentos.core.quota.lease import Lease
from agentos.core.ratelimit.limits import LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.gateway.access_denials import AccessDenials
from agentos.gateway.dialects.base import GatewayError, send_error, send_response
from agentos.gateway.lease_broker import LeaseBroker, NoKey
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.upstream import NoResponse, StreamRedactor, Upstream, UpstreamResponse
from agentos.gateway.url_rewriter import UrlRewriter
from agentos.gateway.usage import CallEnding, CallRecord, UsageReader, json_or_none
from agentos.http.connection import Connection, Headers

MAX_PROVIDER_ERRORS = 4
MAX_DENIALS = 8  # keys that a call tries if none of them has permission
MIN_COUNTED_WAIT = 0.1  # seconds; handing over a key takes less
MAX_REFUSAL_BYTES = 1 << 20
DENIED = (RefusalKind.NO_ACCESS, RefusalKind.CALL_DENIED)


@dataclass(frozen=True, slots=True)
class CallContext:
    """What forwarding a call needs; leases are acquired from `broker` for `holder`."""

    holder: str
    broker: LeaseBroker
    upstream: Upstream
    clock: Clock
    denials: AccessDenials
    since: float | None = None
    """When the call first asked for a key, if this is a retry that the gateway asked for."""


@dataclass(frozen=True, slots=True)
class RefusedAttempt:
    """A failed attempt that may be repeated with another key; `status` is 0 if there is no response to pass on."""

    refusal: Refusal
    status: int = 0
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class WaitListener:
    """Notified when a call starts and stops waiting for a key and, if that takes long, of the reason."""

    on_start: Callable[[], None]
    on_end: Callable[[], None]
    on_reason: Callable[[str], None]


class LeaseGuard:
    """Releases the lease of one attempt exactly once, with the usage, limits and refusal seen by then.

    `started` is set once the client has received the first bytes of the response: from then on no other key can take
    over.
    """

    def __init__(self, context: CallContext, record: CallRecord, request: ProxyRequest, lease: Lease) -> None:
        self._context = context
        self._record = record
        self._request = request
        self._lease = lease
        self._released = False
        self.redactor = StreamRedactor(lease.credential.secret.reveal())
        self.started = False
        self.reader: UsageReader | None = None
        self.limits: tuple[LimitSeen, ...] = ()

    @property
    def key(self) -> str:
        return self._lease.credential.name

    def release(self, refusal: Refusal | None) -> None:
        self._released = True
        usage = self._usage()
        published = self._context.broker.release(
            events.LeaseReleased(
                self._context.holder,
                self._lease.id,
                self._context.clock.monotonic() - self._lease.granted_at,
                usage,
                refusal,
                self._request.model,
                self.limits,
            )
        )
        self._record.usage += usage
        for event in published:
            if isinstance(event, events.CallCompleted):
                self._record.cost = add_costs(self._record.cost, event.cost)

    def end(self) -> None:
        """Release a lease that is still held, because the client disconnected before or during the response."""
        if self._released:
            return
        if self.started:
            self.release(None)
        else:
            # The real usage is unknown, so the estimate stays booked.
            self._released = self._record.is_abandoned = True
            self._context.broker.forget(self._context.holder)

    def _usage(self) -> Usage:
        if self._request.is_unmetered or self.reader is None or not self.started:
            return Usage()
        self._record.is_estimate = self.reader.is_estimate
        return self.reader.usage(self._request.input_tokens)


class Forwarder:
    """Forwards one request, streams the response back, and keeps `record` up to date even when cancelled.

    An attempt that is refused before the first byte is repeated with another key. The provider's own error is passed on
    after MAX_PROVIDER_ERRORS server errors, or when no key, or none of MAX_DENIALS keys, has permission.
    """

    def __init__(
        self,
        context: CallContext,
        record: CallRecord,
        request: ProxyRequest,
        connection: Connection,
        waits: "WaitListener",
    ) -> None:
        self._context = context
        self._record = record
        self._request = request
        self._connection = connection
        self._waits = waits
        self._urls: UrlRewriter | None = None
        self._denied: tuple[str, ...] = ()  # names of keys

    async def forward(self, deadline: float) -> None:
        """Raises NoKey if no key can be leased before `deadline`."""
        refused: RefusedAttempt | None = None
        while True:
            try:
                lease = await self._acquire(deadline)
            except NoKey:
                if refused is None or refused.refusal.kind not in DENIED:
                    raise
                # Every key got the same answer, so the provider's own words help more than ours.
                self._pass_on(refused)
                return
            refused = await self._attempt(lease)
            if refused is None:
                return
            if refused.refusal.kind.is_failure:
                self._record.failed += 1
            else:
                self._record.refused += 1
            if self._record.failed == MAX_PROVIDER_ERRORS or len(self._denied) == MAX_DENIALS:
                self._pass_on(refused)
                return

    async def _acquire(self, deadline: float) -> Lease:
        context, request = self._context, self._request
        started_at = context.clock.monotonic()
        wanted = events.LeaseRequested(
            context.holder,
            "call",
            (request.dialect.provider,),
            (request.model,),
            request.input_tokens,
            affinity=self._record.item,
        )
        is_waiting = False

        def start_wait() -> None:
            nonlocal is_waiting
            is_waiting = True
            self._waits.on_start()

        late = asyncio.get_running_loop().call_later(MIN_COUNTED_WAIT, start_wait)
        try:
            return await context.broker.acquire(
                wanted, deadline, self._waits.on_reason, context.since, self._denied
            )
        finally:
            self._record.waited += context.clock.monotonic() - started_at
            late.cancel()
            if is_waiting:
                self._waits.on_end()

    async def _attempt(self, lease: Lease) -> RefusedAttempt | None:
        """Return None once the client has a response. The lease is released in any case."""
        guard = LeaseGuard(self._context, self._record, self._request, lease)
        try:
            async with self._context.upstream.send(self._request, lease.credential) as response:
                if response.status < 400:
                    return await self._stream(response, guard)
                return await self._read_refusal(response, guard)
        except NoResponse as error:
            refused = RefusedAttempt(Refusal(RefusalKind.PROVIDER_ERROR, str(error)))
            guard.release(refused.refusal)
            if not guard.started:
                return refused
            self._record.ending = CallEnding.BROKEN
            self._connection.reset()
            return None
        finally:
            guard.end()

    async def _stream(self, response: UpstreamResponse, guard: LeaseGuard) -> RefusedAttempt | None:
        reader = guard.reader = UsageReader(self._request.dialect, response.header_map)
        guard.limits = self._request.dialect.limits(response.header_map)
        async for chunk in response.body:
            reader.feed(chunk)
            if not guard.started:
                # A stream whose first event is an error has delivered nothing yet: try another key.
                refusal = self._stream_refusal(reader, response) if reader.events == 1 else None
                if refusal:
                    guard.release(refusal)
                    return RefusedAttempt(refusal)
                self._start_response(response, guard)
            self._connection.put(self._passed_on(guard, chunk))
            await self._connection.flush()
        reader.end()
        if not guard.started:
            self._start_response(response, guard)
        rest = guard.redactor.flush()
        self._connection.put(self._urls.feed(rest) + self._urls.flush() if self._urls else rest)
        self._connection.finish()
        self._record.ending = CallEnding.COMPLETE
        guard.release(self._stream_refusal(reader, response))
        return None

    def _passed_on(self, guard: LeaseGuard, chunk: bytes) -> bytes:
        redacted = guard.redactor.feed(chunk)
        return self._urls.feed(redacted) if self._urls else redacted

    def _start_response(self, response: UpstreamResponse, guard: LeaseGuard) -> None:
        guard.started = True
        self._context.denials.record_success(guard.key, self._request.model)
        self._record.status, self._record.key = response.status, guard.key
        rewriter = UrlRewriter(response.base_url, self._request.gateway_url, self._request.token)
        headers = rewriter.headers(guard.redactor.redact_headers(response.headers))
        is_json = response.header_map.get("content-type", "").startswith("application/json")
        if self._request.is_unmetered and is_json:
            # The body's length changes with its URLs.
            self._urls = rewriter
            headers = tuple((name, value) for name, value in headers if name != "content-length")
        self._connection.begin(response.status, headers)

    def _stream_refusal(self, reader: UsageReader, response: UpstreamResponse) -> Refusal | None:
        if (failure := reader.failure) is None:
            return None
        return self._refusal(failure.status, failure.body, response)

    def _refusal(self, status: int, body: object, response: UpstreamResponse) -> Refusal | None:
        return self._request.dialect.refusal(status, body, response.header_map, self._context.clock.wall())

    async def _read_refusal(self, response: UpstreamResponse, guard: LeaseGuard) -> RefusedAttempt | None:
        """Pass on an error that the request itself caused, and return None: another key would not help."""
        body = bytearray()
        async for chunk in response.body:
            body += chunk[: MAX_REFUSAL_BYTES - len(body)]
        guard.limits = self._request.dialect.limits(response.header_map)
        refusal = self._refusal(response.status, json_or_none(bytes(body)), response)
        if refusal and response.status == 403 and refusal.kind is RefusalKind.NO_ACCESS:
            refusal = self._denial(refusal, guard.key)
        guard.release(refusal)
        headers = guard.redactor.redact_headers(response.headers)
        redacted = guard.redactor.redact(bytes(body))
        if refusal is not None:
            return RefusedAttempt(refusal, response.status, headers, redacted)
        self._record.key = guard.key
        self._send_upstream_error(response.status, headers, redacted)
        self._record.ending = CallEnding.COMPLETE
        return None

    def _denial(self, refusal: Refusal, key: str) -> Refusal:
        """What a 403 means: either the key may not use the model, or only this call is denied and other keys are tried."""
        request = self._request
        if not request.is_unmetered and self._context.denials.is_about_key(
            key, request.model, self._record.item
        ):
            return refusal
        self._denied += (key,)
        return replace(refusal, kind=RefusalKind.CALL_DENIED)

    def _pass_on(self, refused: RefusedAttempt) -> None:
        """Send the provider's error, or one of our own if the provider sent none."""
        self._context.broker.forget(self._context.holder)
        self._record.ending = CallEnding.PASSED_ON
        if refused.status:
            self._send_upstream_error(refused.status, refused.headers, refused.body)
        else:
            self._record.status = GatewayError.FAILING.value
            provider, reason = self._request.dialect.provider, refused.refusal.reason
            message = f"{provider} failed {MAX_PROVIDER_ERRORS} times in a row ({reason})"
            send_error(self._connection, self._request.dialect, GatewayError.FAILING, message)

    def _send_upstream_error(self, status: int, headers: Headers, body: bytes) -> None:
        self._record.status = status
        kept = tuple((name, value) for name, value in headers if name != "content-length")
        send_response(self._connection, status, kept, body)
