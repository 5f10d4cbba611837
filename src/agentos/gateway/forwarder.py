"""One call on its way: from key to key until one answers, then the answer back as it comes."""

from collections.abc import Callable
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.core.quota.lease import Lease
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.loan import LeaseGuard
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.responses import send_error, send_response
from agentos.gateway.upstream import NoAnswer, UpstreamResponse
from agentos.gateway.usage import CallEnding, CallRecord
from agentos.gateway.usage_reader import UsageReader, json_or_none
from agentos.gateway.way import CallContext
from agentos.http.connection import Connection, Headers

MOST_TROUBLES = 4
MOST_REFUSAL = 1 << 20


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that says no: why, and the words of it."""

    refusal: Refusal
    status: int = 0
    headers: Headers = ()
    body: bytes = b""


class Forwarder:
    """`say` is told what is waited for; `record` tells how it ended, also when it is cancelled."""

    def __init__(
        self,
        way: CallContext,
        record: CallRecord,
        asked: ProxyRequest,
        out: Connection,
        say: Callable[[str], None],
    ) -> None:
        self._context = way
        self._record = record
        self._request = asked
        self._out = out
        self._say = say

    async def forward(self, until: float) -> None:
        troubles = 0
        while True:
            lease = await self._acquire(until)
            refused = await self._try(lease)
            if refused is None:
                return
            self._record.refused += 1
            troubles += refused.refusal.kind is RefusalKind.PROVIDER_ERROR
            if troubles == MOST_TROUBLES:
                self._pass_on(refused)
                return

    async def _acquire(self, until: float) -> Lease:
        way, asked = self._context, self._request
        began = way.clocks.host()
        wish = events.LeaseRequested(
            way.holder, "call", (asked.dialect.provider,), (asked.model,), asked.input_tokens
        )
        try:
            return await way.broker.acquire(wish, until, self._say)
        finally:
            self._record.waited += way.clocks.host() - began

    async def _try(self, lease: Lease) -> Refused | None:
        """None if the client has its answer; whatever happens, the lease goes back."""
        guard = LeaseGuard(self._context, self._record, self._request, lease)
        try:
            async with self._context.upstream.send(self._request, lease.credential) as response:
                if response.status < 400:
                    return await self._stream(response, guard)
                return await self._read_refusal(response, guard)
        except NoAnswer as error:
            refused = Refused(Refusal(RefusalKind.PROVIDER_ERROR, str(error)))
            guard.release(refused.refusal)
            if not guard.begun:
                return refused
            self._record.ending = CallEnding.BROKEN
            self._out.reset()
            return None
        finally:
            guard.end()

    # An answer.

    async def _stream(self, response: UpstreamResponse, guard: LeaseGuard) -> Refused | None:
        reader = guard.reader = UsageReader(self._request.dialect, response.named)
        guard.limits = self._request.dialect.limits(response.named)
        async for piece in response.body:
            reader.feed(piece)
            if not guard.begun:
                if refused := self._refused_at_once(reader, response):
                    guard.release(refused.refusal)
                    return refused
                self._begin(response, guard)
            self._out.put(guard.redactor.feed(piece))
            await self._out.flush()
        reader.end()
        if not guard.begun:
            self._begin(response, guard)
        self._out.put(guard.redactor.flush())
        self._out.finish()
        self._record.ending = CallEnding.COMPLETE
        guard.release(self._failed(reader, response))
        return None

    def _begin(self, response: UpstreamResponse, guard: LeaseGuard) -> None:
        guard.begun = True
        self._record.status, self._record.key = response.status, guard.key
        self._out.begin(response.status, guard.redactor.redact_headers(response.headers))

    def _refused_at_once(self, reader: UsageReader, response: UpstreamResponse) -> Refused | None:
        """A stream whose first event is an error has said nothing yet: another key may do better."""
        refusal = self._failed(reader, response) if reader.events == 1 else None
        return Refused(refusal) if refusal else None

    def _failed(self, reader: UsageReader, response: UpstreamResponse) -> Refusal | None:
        if (failure := reader.failure) is None:
            return None
        return self._refusal(failure.status, failure.body, response)

    # A refusal.

    def _refusal(self, status: int, body: object, response: UpstreamResponse) -> Refusal | None:
        return self._request.dialect.refusal(status, body, response.named, self._context.clocks.wall())

    async def _read_refusal(self, response: UpstreamResponse, guard: LeaseGuard) -> Refused | None:
        """None for one that is the agent's own fault, and goes to it: no other key would help."""
        body = bytearray()
        async for piece in response.body:
            body += piece[: MOST_REFUSAL - len(body)]
        guard.limits = self._request.dialect.limits(response.named)
        refusal = self._refusal(response.status, json_or_none(bytes(body)), response)
        guard.release(refusal)
        headers, words = guard.redactor.redact_headers(response.headers), guard.redactor.redact(bytes(body))
        if refusal is not None:
            return Refused(refusal, response.status, headers, words)
        self._record.key = guard.key
        self._send_no_key(response.status, headers, words)
        self._record.ending = CallEnding.COMPLETE
        return None

    def _pass_on(self, refused: Refused) -> None:
        """Tried often enough: the provider's own words, or ours where it had none."""
        self._context.broker.forget(self._context.holder)
        self._record.ending = CallEnding.PASSED_ON
        if refused.status:
            self._send_no_key(refused.status, refused.headers, refused.body)
        else:
            self._record.status = GatewayError.FAILING.value
            message = f"{self._request.dialect.provider} does not answer ({refused.refusal.reason})"
            send_error(self._out, self._request, GatewayError.FAILING, message)

    def _send_no_key(self, status: int, headers: Headers, body: bytes) -> None:
        self._record.status = status
        kept = tuple((name, value) for name, value in headers if name != "content-length")
        send_response(self._out, status, kept, body)
