"""One call on its way: from key to key until one answers, then the answer back as it comes."""

from collections.abc import Callable
from dataclasses import dataclass

from agentos.core import events
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.wants import Lease
from agentos.gateway.account import CallRecord, Ending
from agentos.gateway.answers import answer, refuse
from agentos.gateway.asking import Asked
from agentos.gateway.dialects.dialect import Trouble
from agentos.gateway.loan import Loan
from agentos.gateway.reading import AnswerReader, json_or_none
from agentos.gateway.upstream import NoAnswer, Response
from agentos.gateway.way import Way
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


class Call:
    """`say` is told what is waited for; `record` tells how it ended, also when it is cancelled."""

    def __init__(
        self, way: Way, record: CallRecord, asked: Asked, out: Connection, say: Callable[[str], None]
    ) -> None:
        self._way = way
        self._record = record
        self._asked = asked
        self._out = out
        self._say = say

    async def carry(self, until: float) -> None:
        troubles = 0
        while True:
            lease = await self._lend(until)
            refused = await self._try(lease)
            if refused is None:
                return
            self._record.refused += 1
            troubles += refused.refusal.kind is RefusalKind.TROUBLE
            if troubles == MOST_TROUBLES:
                self._pass_on(refused)
                return

    async def _lend(self, until: float) -> Lease:
        way, asked = self._way, self._asked
        began = way.clocks.host()
        wish = events.LeaseWanted(
            way.holder, "call", (asked.dialect.provider,), (asked.model,), asked.input_tokens
        )
        try:
            return await way.desk.lend(wish, until, self._say)
        finally:
            self._record.waited += way.clocks.host() - began

    async def _try(self, lease: Lease) -> Refused | None:
        """None if the client has its answer; whatever happens, the lease goes back."""
        loan = Loan(self._way, self._record, self._asked, lease)
        try:
            async with self._way.upstream.send(self._asked, lease.credential) as response:
                if response.status < 400:
                    return await self._stream(response, loan)
                return await self._read_refusal(response, loan)
        except NoAnswer as error:
            refused = Refused(Refusal(RefusalKind.TROUBLE, str(error)))
            loan.back(refused.refusal)
            if not loan.begun:
                return refused
            self._record.ending = Ending.BROKEN
            self._out.reset()
            return None
        finally:
            loan.end()

    # An answer.

    async def _stream(self, response: Response, loan: Loan) -> Refused | None:
        reader = loan.reader = AnswerReader(self._asked.dialect, response.named)
        loan.limits = self._asked.dialect.limits(response.named)
        async for piece in response.body:
            reader.feed(piece)
            if not loan.begun:
                if refused := self._refused_at_once(reader, response):
                    loan.back(refused.refusal)
                    return refused
                self._begin(response, loan)
            self._out.put(loan.veil.hide_next(piece))
            await self._out.flush()
        reader.end()
        if not loan.begun:
            self._begin(response, loan)
        self._out.put(loan.veil.rest())
        self._out.finish()
        self._record.ending = Ending.COMPLETE
        loan.back(self._failed(reader, response))
        return None

    def _begin(self, response: Response, loan: Loan) -> None:
        loan.begun = True
        self._record.status, self._record.key = response.status, loan.key
        self._out.begin(response.status, loan.veil.hide_in(response.headers))

    def _refused_at_once(self, reader: AnswerReader, response: Response) -> Refused | None:
        """A stream whose first event is an error has said nothing yet: another key may do better."""
        refusal = self._failed(reader, response) if reader.events == 1 else None
        return Refused(refusal) if refusal else None

    def _failed(self, reader: AnswerReader, response: Response) -> Refusal | None:
        if (failure := reader.failure) is None:
            return None
        return self._refusal(failure.status, failure.body, response)

    # A refusal.

    def _refusal(self, status: int, body: object, response: Response) -> Refusal | None:
        return self._asked.dialect.refusal(status, body, response.named, self._way.clocks.wall())

    async def _read_refusal(self, response: Response, loan: Loan) -> Refused | None:
        """None for one that is the agent's own fault, and goes to it: no other key would help."""
        body = bytearray()
        async for piece in response.body:
            body += piece[: MOST_REFUSAL - len(body)]
        loan.limits = self._asked.dialect.limits(response.named)
        refusal = self._refusal(response.status, json_or_none(bytes(body)), response)
        loan.back(refusal)
        headers, words = loan.veil.hide_in(response.headers), loan.veil.hide(bytes(body))
        if refusal is not None:
            return Refused(refusal, response.status, headers, words)
        self._record.key = loan.key
        self._say_no(response.status, headers, words)
        self._record.ending = Ending.COMPLETE
        return None

    def _pass_on(self, refused: Refused) -> None:
        """Tried often enough: the provider's own words, or ours where it had none."""
        self._way.desk.forget(self._way.holder)
        self._record.ending = Ending.PASSED_ON
        if refused.status:
            self._say_no(refused.status, refused.headers, refused.body)
        else:
            self._record.status = Trouble.FAILING.value
            message = f"{self._asked.dialect.provider} does not answer ({refused.refusal.reason})"
            refuse(self._out, self._asked, Trouble.FAILING, message)

    def _say_no(self, status: int, headers: Headers, body: bytes) -> None:
        self._record.status = status
        kept = tuple((name, value) for name, value in headers if name != "content-length")
        answer(self._out, status, kept, body)
