"""Puts a gateway together, for as long as its process lives."""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.leasing import Leasing
from agentos.core.money import PriceList, Purse
from agentos.core.pool import Pool
from agentos.core.ports import Neighbours
from agentos.core.secrets import Redactor
from agentos.engines.kernel import leave_no_dump
from agentos.gateway.account import Accounts, CallRecord
from agentos.gateway.asking import Asked
from agentos.gateway.desk import Desk
from agentos.gateway.reception import Reception
from agentos.gateway.relay import Relay
from agentos.gateway.telling import Teller
from agentos.gateway.tokens import Mint
from agentos.gateway.upstream import Upstream
from agentos.gateway.way import Clocks
from agentos.http.server import listening
from agentos.models.offline.process import watch_stdin
from agentos.models.offline_process import start_offline_server
from agentos.models.prices import price_list
from agentos.outputs.jsonlines import JsonLines
from agentos.outputs.writer import LineWriter
from agentos.settings import Settings, environment, worker_environment
from agentos.storage.alone import Alone
from agentos.storage.clock import host_clock
from agentos.storage.credential_watch import CredentialWatch
from agentos.storage.credentials import PROVIDERS, CredentialSource, no_key
from agentos.storage.hostlog import HostLog
from agentos.storage.layout import Home

MOST_BODY = 128 * 1024 * 1024
SIDE_CALLS = 32
LOOK_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Service:
    """One `agentos gateway`, as asked for; `leashed` ends with its standard input, whose first line is the seed."""

    settings: Settings
    max_wait: float
    port: int = 0
    offline: bool = False
    offline_arguments: tuple[str, ...] = ()
    leashed: bool = False
    tell_events: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Where it listens, whom it forwards to, and the maker of its tokens."""

    url: str
    providers: tuple[str, ...]
    mint: Mint


def run_gateway(service: Service, ready: Callable[[Ready], None]) -> int:
    """Until Ctrl-C, SIGTERM, SIGHUP or, on a leash, the end of its standard input."""
    # Its environment has the keys, and the agents run as the same user.
    leave_no_dump()
    mint = Mint(seed) if service.leashed and (seed := _first_line()) else Mint()
    with contextlib.ExitStack() as stack:
        return asyncio.run(_Gateway(service, mint, stack).serve(ready))


class _Gateway:
    """Builds the parts, in the order in which they are needed."""

    def __init__(self, service: Service, mint: Mint, stack: contextlib.ExitStack) -> None:
        self._service = service
        self._settings = service.settings
        self._mint = mint
        self._stack = stack
        self._home = Home(service.settings.home)
        self._redact = Redactor()
        self._prices = price_list(service.settings.prices)
        self._accounts = Accounts()
        self._clocks = Clocks(host_clock, time.time)
        people = stack.enter_context(contextlib.closing(LineWriter(2)))
        self._teller = Teller(people.write, self._redact, time.time)
        self._programs: JsonLines | None = None
        self._served = False

    async def serve(self, ready: Callable[[Ready], None]) -> int:
        service, source = self._service, self._source()
        credentials = source.adjusted(self._offline()) if service.offline else self._usable(source.read())
        desk = self._desk(credentials, Alone() if service.offline else self._host_log())
        aside = _side_desk(credentials, self._teller)
        upstream = Upstream(environment())
        relay = Relay(desk, aside, upstream, self._clocks, service.max_wait)
        reception = Reception(self._mint, relay, self._over, self._teller.waits, self._unaffordable)
        began = time.monotonic()
        try:
            async with listening(reception.attend, port=service.port, most_body=MOST_BODY) as url:
                keys = Counter(one.provider for one in credentials if one.enabled)
                self._served = True
                ready(Ready(url, tuple(keys), self._mint))
                if service.tell_events:
                    programs = self._stack.enter_context(contextlib.closing(LineWriter(1)))
                    self._programs = JsonLines(programs.write, self._redact)
                self._teller.started(url, keys, service.max_wait)
                watch = None if service.offline else CredentialWatch(source, self._usable)
                await self._until_told(watch, desk, aside)
        finally:
            for one in (desk, aside):
                one.close()
            await upstream.close()
            if self._served:
                self._teller.summary(self._accounts, time.monotonic() - began)
        return 0

    # The parts.

    def _source(self) -> CredentialSource:
        settings = self._settings
        return CredentialSource(
            self._home.credentials, environment(), settings.credential_limit, settings.key_concurrency
        )

    def _usable(self, found: list[Credential]) -> list[Credential]:
        """The agent names its model: what a credential says of it is for runs."""
        self._redact.learn(credential.secret for credential in found)
        if not any(credential.enabled for credential in found):
            raise no_key("gemini", self._home.credentials)
        return [replace(credential, model=None) for credential in found]

    def _offline(self) -> list[Credential]:
        """The built-in server speaks every format: each of its keys is one of each provider; its work is free."""
        server = start_offline_server(worker_environment(), self._service.offline_arguments)
        self._stack.enter_context(contextlib.closing(server))
        made = list(enumerate(server.credentials(), 1))
        return [
            replace(one, name=f"{provider}-{number}", provider=provider)
            for provider in PROVIDERS
            for number, one in made
        ]

    def _host_log(self) -> HostLog:
        name = f"{os.getpid()}-{time.time_ns()}"
        log = HostLog(self._home.open().quota, name)
        return self._stack.enter_context(contextlib.closing(log))

    def _desk(self, credentials: list[Credential], neighbours: Neighbours) -> Desk:
        purse = Purse(self._prices, self._settings.budget)
        leasing = Leasing(Pool(credentials), random.random, purse)
        return Desk(leasing, neighbours, host_clock, self._news)

    # What happens while it serves.

    async def _until_told(self, watch: CredentialWatch | None, desk: Desk, aside: Desk) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        if self._service.leashed:
            watch_stdin(lambda: loop.call_soon_threadsafe(stop.set))
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY if watch else None)
            if watch:
                self._look(watch, desk, aside)

    def _look(self, watch: CredentialWatch, desk: Desk, aside: Desk) -> None:
        match watch():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._teller.news(rejected)
            case credentials:
                desk.replace(credentials)
                aside.replace(_for_the_side(credentials))

    def _news(self, event: events.News) -> None:
        self._teller.news(event)
        if self._programs and not isinstance(event, events.CallCounted):
            self._programs.hear(event, round(time.time(), 3))

    def _over(self, record: CallRecord) -> None:
        self._accounts.add(record)
        self._teller.over(record)
        if self._programs and record.usage.calls:
            counted = events.CallCounted(record.item, record.key, record.model, record.usage, record.cost)
            self._programs.hear(counted, round(time.time(), 3))

    def _unaffordable(self, asked: Asked) -> str | None:
        free = asked.is_free or self._service.offline
        if self._settings.budget is None or free or self._prices.of(asked.model) is not None:
            return None
        return (
            f"a budget needs the price of {asked.model or 'the model'}: give it in agentos.toml as "
            f'[prices."{asked.model}"] with input and output, in dollars per million tokens'
        )


def _side_desk(credentials: list[Credential], teller: Teller) -> Desk:
    """For calls that no model works for: they draw on no quota, so they wait for nobody's turn."""
    leasing = Leasing(Pool(_for_the_side(credentials)), random.random, Purse(PriceList()))
    return Desk(leasing, Alone(), host_clock, teller.news)


def _for_the_side(credentials: list[Credential]) -> list[Credential]:
    return [replace(one, concurrency=SIDE_CALLS, rates=()) for one in credentials]


def _first_line() -> str:
    return sys.stdin.readline().strip()
