"""A lease until it goes back, which it does once."""

from agentos.core import events
from agentos.core.loads import LimitSeen
from agentos.core.money import together
from agentos.core.refusals import Refusal
from agentos.core.results import Usage
from agentos.core.wants import Lease
from agentos.gateway.account import CallRecord
from agentos.gateway.asking import Asked
from agentos.gateway.reading import AnswerReader
from agentos.gateway.veil import Veil
from agentos.gateway.way import Way


class Loan:
    """`begun`: the client has the first words of the answer, so no other key can take over."""

    def __init__(self, way: Way, record: CallRecord, asked: Asked, lease: Lease) -> None:
        self._way = way
        self._record = record
        self._asked = asked
        self._lease = lease
        self._over = False
        self.veil = Veil(lease.credential.secret.reveal())
        self.begun = False
        self.reader: AnswerReader | None = None
        self.limits: tuple[LimitSeen, ...] = ()

    @property
    def key(self) -> str:
        return self._lease.credential.name

    def back(self, refusal: Refusal | None) -> None:
        self._over = True
        usage = self._usage()
        self._count(usage, self._way.desk.give_back(self._returned(usage, refusal)))

    def end(self) -> None:
        """Still out: the client has left, in the middle of the answer or before it."""
        if self._over:
            return
        if self.begun:
            self.back(None)
        else:
            # Nothing is known of what it used: it counts as it was estimated.
            self._over = True
            self._way.desk.forget(self._way.holder)

    def _returned(self, usage: Usage, refusal: Refusal | None) -> events.LeaseReturned:
        return events.LeaseReturned(
            self._way.holder,
            self._lease.id,
            self._way.clocks.host() - self._lease.granted_at,
            usage,
            refusal,
            self._asked.model,
            self.limits,
        )

    def _usage(self) -> Usage:
        if self._asked.is_free or self.reader is None or not self.begun:
            return Usage()
        self._record.is_estimate = self.reader.is_estimate
        return self.reader.usage(self._asked.input_tokens)

    def _count(self, usage: Usage, news: list[events.News]) -> None:
        self._record.usage += usage
        for one in news:
            if isinstance(one, events.CallCounted):
                self._record.cost = together(self._record.cost, one.cost)
