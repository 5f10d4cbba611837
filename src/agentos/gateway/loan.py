"""A lease until it goes back, which it does once."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import add_costs
from agentos.core.quota.lease import Lease
from agentos.core.ratelimit.limits import LimitSeen
from agentos.core.ratelimit.refusals import Refusal
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.stream_redactor import StreamRedactor
from agentos.gateway.usage import CallRecord
from agentos.gateway.usage_reader import UsageReader
from agentos.gateway.way import CallContext


class LeaseGuard:
    """`begun`: the client has the first words of the answer, so no other key can take over."""

    def __init__(self, way: CallContext, record: CallRecord, asked: ProxyRequest, lease: Lease) -> None:
        self._context = way
        self._record = record
        self._request = asked
        self._lease = lease
        self._over = False
        self.redactor = StreamRedactor(lease.credential.secret.reveal())
        self.begun = False
        self.reader: UsageReader | None = None
        self.limits: tuple[LimitSeen, ...] = ()

    @property
    def key(self) -> str:
        return self._lease.credential.name

    def release(self, refusal: Refusal | None) -> None:
        self._over = True
        usage = self._usage()
        self._count(usage, self._context.broker.release(self._returned(usage, refusal)))

    def end(self) -> None:
        """Still out: the client has left, in the middle of the answer or before it."""
        if self._over:
            return
        if self.begun:
            self.release(None)
        else:
            # Nothing is known of what it used: it counts as it was estimated.
            self._over = True
            self._context.broker.forget(self._context.holder)

    def _returned(self, usage: Usage, refusal: Refusal | None) -> events.LeaseReleased:
        return events.LeaseReleased(
            self._context.holder,
            self._lease.id,
            self._context.clocks.host() - self._lease.granted_at,
            usage,
            refusal,
            self._request.model,
            self.limits,
        )

    def _usage(self) -> Usage:
        if self._request.is_unmetered or self.reader is None or not self.begun:
            return Usage()
        self._record.is_estimate = self.reader.is_estimate
        return self.reader.usage(self._request.input_tokens)

    def _count(self, usage: Usage, news: list[events.News]) -> None:
        self._record.usage += usage
        for one in news:
            if isinstance(one, events.CallCompleted):
                self._record.cost = add_costs(self._record.cost, one.cost)
