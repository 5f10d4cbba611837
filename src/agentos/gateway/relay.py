"""Carries one call: from key to key until one answers, then the answer back as it comes."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass

from agentos.core import events
from agentos.core.loads import LimitSeen
from agentos.core.refusals import Refusal, RefusalKind
from agentos.core.results import Usage
from agentos.core.wants import Lease
from agentos.gateway.account import CallRecord, Ending
from agentos.gateway.asking import Asked
from agentos.gateway.desk import Desk, NoKey
from agentos.gateway.dialects.dialect import Trouble
from agentos.gateway.reading import AnswerReader
from agentos.gateway.upstream import NoAnswer, Response, Upstream
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


@dataclass(frozen=True, slots=True)
class Clocks:
    """Durations by the host's, dates by the wall's."""

    host: Callable[[], float]
    wall: Callable[[], float]


class Relay:
    """`desk` lends keys for work, `aside` for what costs no quota, such as counting tokens."""

    def __init__(self, desk: Desk, aside: Desk, upstream: Upstream, clocks: Clocks, max_wait: float) -> None:
        self._desk = desk
        self._aside = aside
        self._upstream = upstream
        self._clocks = clocks
        self._max_wait = max_wait
        self._numbers = itertools.count(1)

    async def carry(
        self, record: CallRecord, asked: Asked, out: Connection, say: Callable[[str], None]
    ) -> None:
        """Answers, one way or another; `record` tells how, also when it is cancelled."""
        call = _Call(self, record, asked, out, say)
        began = self._clocks.host()
        try:
            await call.carry(began + self._max_wait)
        except NoKey as error:
            record.ending, record.status = Ending.NO_KEY, error.trouble.value
            refuse(out, asked, error.trouble, str(error), error.seconds)
        finally:
            record.seconds = self._clocks.host() - began

    def name_for(self, item: str) -> str:
        """Each call holds its keys by itself, so that it can be given up by itself."""
        return f"{item} {next(self._numbers)}"

    def desk_for(self, asked: Asked) -> Desk:
        return self._aside if asked.is_free else self._desk

    @property
    def upstream(self) -> Upstream:
        return self._upstream

    @property
    def clocks(self) -> Clocks:
        return self._clocks


class _Call:
    """One call on its way."""

    def __init__(
        self,
        relay: Relay,
        record: CallRecord,
        asked: Asked,
        out: Connection,
        say: Callable[[str], None],
    ) -> None:
        self._relay = relay
        self._record = record
        self._asked = asked
        self._out = out
        self._say = say
        self._holder = relay.name_for(record.item)
        self._desk = relay.desk_for(asked)

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
        clock = self._relay.clocks.host
        began = clock()
        asked = self._asked
        wish = events.LeaseWanted(
            self._holder,
            "call",
            (asked.dialect.provider,),
            (asked.model,),
            asked.input_tokens,
        )
        try:
            return await self._desk.lend(wish, until, self._say)
        finally:
            self._record.waited += clock() - began

    async def _try(self, lease: Lease) -> Refused | None:
        """None if the client has its answer; whatever happens, the lease goes back."""
        loan = _Loan(self, lease)
        try:
            async with self._relay.upstream.send(self._asked, lease.credential) as response:
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

    async def _stream(self, response: Response, loan: "_Loan") -> Refused | None:
        reader = loan.reader = AnswerReader(self._asked.dialect, response.named)
        loan.limits = self._asked.dialect.limits(response.named)
        async for piece in response.body:
            reader.feed(piece)
            if not loan.begun:
                if refused := self._refused_at_once(reader, response):
                    loan.back(refused.refusal)
                    return refused
                self._begin(response, loan)
            self._out.put(loan.veil(piece))
            await self._out.flush()
        reader.end()
        if not loan.begun:
            self._begin(response, loan)
        self._out.finish()
        self._record.ending = Ending.COMPLETE
        loan.back(self._failed(reader, response))
        return None

    def _begin(self, response: Response, loan: "_Loan") -> None:
        loan.begun = True
        self._record.status, self._record.key = response.status, loan.lease.credential.name
        self._out.begin(response.status, [(name, loan.veil_text(value)) for name, value in response.headers])

    def _refused_at_once(self, reader: AnswerReader, response: Response) -> Refused | None:
        """A stream whose first event is an error has said nothing yet: another key may do better."""
        refusal = self._failed(reader, response) if reader.events == 1 else None
        return Refused(refusal) if refusal else None

    def _failed(self, reader: AnswerReader, response: Response) -> Refusal | None:
        if (failure := reader.failure) is None:
            return None
        return self._refusal(failure.status, failure.body, response)

    def _refusal(self, status: int, body: object, response: Response) -> Refusal | None:
        return self._asked.dialect.refusal(status, body, response.named, self._relay.clocks.wall())

    async def _read_refusal(self, response: Response, loan: "_Loan") -> Refused | None:
        body = bytearray()
        async for piece in response.body:
            body += piece[: MOST_REFUSAL - len(body)]
        loan.limits = self._asked.dialect.limits(response.named)
        words = Refused(Refusal(RefusalKind.TROUBLE, ""), response.status, response.headers, bytes(body))
        refusal = self._refusal(response.status, _json(bytes(body)), response)
        if refusal is not None:
            loan.back(refusal)
            return Refused(refusal, words.status, words.headers, loan.veil(words.body))
        loan.back(None)
        self._record.key = loan.lease.credential.name
        self._say_no(words.status, words.headers, loan.veil(words.body))
        self._record.ending = Ending.COMPLETE
        return None

    def _pass_on(self, refused: Refused) -> None:
        """Tried often enough: the provider's own words, or ours where it had none."""
        self._desk.forget(self._holder)
        self._record.ending = Ending.PASSED_ON
        if refused.status:
            self._say_no(refused.status, refused.headers, refused.body)
        else:
            self._record.status = Trouble.FAILING.value
            message = f"{self._asked.dialect.provider} does not answer ({refused.refusal.reason})"
            refuse(self._out, self._asked, Trouble.FAILING, message)

    def _say_no(self, status: int, headers: Headers, body: bytes) -> None:
        self._record.status = status
        kept = [(name, value) for name, value in headers if name != "content-length"]
        self._out.begin(status, [*kept, ("content-length", str(len(body)))])
        self._out.put(body)
        self._out.finish()

    # What goes back with a lease.

    def give_back(self, loan: "_Loan", refusal: Refusal | None) -> None:
        usage, asked = self._usage(loan), self._asked
        news = self._desk.give_back(
            events.LeaseReturned(
                self._holder,
                loan.lease.id,
                self._relay.clocks.host() - loan.lease.granted_at,
                usage,
                refusal,
                asked.model,
                loan.limits,
            )
        )
        self._count(usage, news)

    def abandon(self) -> None:
        """Nothing is known of what it used: it counts as it was estimated."""
        self._desk.forget(self._holder)

    def _usage(self, loan: "_Loan") -> Usage:
        if self._asked.is_free or loan.reader is None or not loan.begun:
            return Usage()
        self._record.is_estimate = loan.reader.is_estimate
        return loan.reader.usage(self._asked.input_tokens)

    def _count(self, usage: Usage, news: list[events.News]) -> None:
        self._record.usage += usage
        for one in news:
            if isinstance(one, events.CallCounted):
                self._record.cost = (
                    None if one.cost is None or self._record.cost is None else self._record.cost + one.cost
                )


class _Loan:
    """A lease until it goes back, which it does once."""

    def __init__(self, call: _Call, lease: Lease) -> None:
        self._call = call
        self._over = False
        self._secret = lease.credential.secret.reveal().encode()
        self.lease = lease
        self.begun = False
        self.reader: AnswerReader | None = None
        self.limits: tuple[LimitSeen, ...] = ()

    def veil(self, piece: bytes) -> bytes:
        """Whoever answers has seen the key; the agent must not."""
        return piece.replace(self._secret, b"*" * len(self._secret)) if self._secret in piece else piece

    def veil_text(self, text: str) -> str:
        return self.veil(text.encode("latin-1")).decode("latin-1")

    def end(self) -> None:
        """Still out: the client has left, in the middle of the answer or before it."""
        if not self._over and self.begun:
            self.back(None)
        elif not self._over:
            self._over = True
            self._call.abandon()

    def back(self, refusal: Refusal | None) -> None:
        self._over = True
        self._call.give_back(self, refusal)


def refuse(
    out: Connection, asked: Asked, trouble: Trouble, message: str, seconds: float | None = None
) -> None:
    """In the words of the vendor whose format was spoken."""
    body = json.dumps(asked.dialect.words(trouble, f"agentos gateway: {message}", seconds)).encode()
    hint = [("retry-after", str(max(1, round(seconds))))] if seconds is not None else []
    out.begin(
        trouble.value,
        [("content-type", "application/json"), ("content-length", str(len(body))), *hint],
    )
    out.put(body)
    out.finish()


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
