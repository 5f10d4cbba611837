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

from agentos.config.prices import price_list
from agentos.config.settings import Settings, environment, worker_environment
from agentos.core.protocol import events
from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Redactor
from agentos.engines.prctl import disable_core_dumps
from agentos.gateway.console import GatewayConsole
from agentos.gateway.handler import RequestHandler
from agentos.gateway.lease_broker import LeaseBroker
from agentos.gateway.relay import Relay
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.tokens import TokenSigner
from agentos.gateway.upstream import Upstream
from agentos.gateway.usage import CallRecord, UsageByItem
from agentos.gateway.way import Clocks
from agentos.http.server import listening
from agentos.offline.child import start_offline_server
from agentos.offline.process import watch_stdin
from agentos.outputs.jsonlines import JsonLines
from agentos.outputs.writer import LineWriter
from agentos.storage.clock import host_clock
from agentos.storage.credentials.reader import PROVIDERS, CredentialSource, no_key
from agentos.storage.credentials.watch import CredentialWatch
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog, NoPeers

MOST_BODY = 128 * 1024 * 1024
SIDE_CALLS = 32
LOOK_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """One `agentos gateway`, as asked for; `leashed` ends with its standard input, whose first line is the seed."""

    settings: Settings
    max_wait: float
    port: int = 0
    offline: bool = False
    offline_arguments: tuple[str, ...] = ()
    ends_with_stdin: bool = False
    tell_events: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """Where it listens, whom it forwards to, and the maker of its tokens."""

    url: str
    providers: tuple[str, ...]
    signer: TokenSigner


def run_gateway(service: GatewayOptions, ready: Callable[[Ready], None]) -> int:
    """Until Ctrl-C, SIGTERM, SIGHUP or, on a leash, the end of its standard input."""
    # Its environment has the keys, and the agents run as the same user.
    disable_core_dumps()
    signer = TokenSigner(seed) if service.ends_with_stdin and (seed := _first_line()) else TokenSigner()
    with contextlib.ExitStack() as stack:
        return asyncio.run(_Gateway(service, signer, stack).serve(ready))


class _Gateway:
    """Builds the parts, in the order in which they are needed."""

    def __init__(self, service: GatewayOptions, signer: TokenSigner, stack: contextlib.ExitStack) -> None:
        self._options = service
        self._settings = service.settings
        self._signer = signer
        self._stack = stack
        self._home = Home(service.settings.home)
        self._redact = Redactor()
        self._prices = price_list(service.settings.prices)
        self._usage = UsageByItem()
        self._clocks = Clocks(host_clock, time.time)
        people = stack.enter_context(contextlib.closing(LineWriter(2)))
        self._console = GatewayConsole(people.write, self._redact, time.time)
        self._programs: JsonLines | None = None
        self._served = False

    async def serve(self, ready: Callable[[Ready], None]) -> int:
        service, source = self._options, self._source()
        credentials = source.adjusted(self._offline()) if service.offline else self._usable(source.read())
        context = self._broker(credentials, NoPeers() if service.offline else self._host_log())
        aside = _side_desk(credentials, self._console)
        upstream = Upstream(environment())
        relay = Relay(context, aside, upstream, self._clocks, service.max_wait)
        reception = RequestHandler(
            self._signer, relay, self._over, self._console.call_waiting, self._unaffordable
        )
        began = time.monotonic()
        try:
            async with listening(reception.handle, port=service.port, most_body=MOST_BODY) as url:
                keys = Counter(one.provider for one in credentials if one.enabled)
                self._served = True
                ready(Ready(url, tuple(keys), self._signer))
                if service.tell_events:
                    programs = self._stack.enter_context(contextlib.closing(LineWriter(1)))
                    self._programs = JsonLines(programs.write, self._redact)
                self._console.started(url, keys, service.max_wait)
                watch = None if service.offline else CredentialWatch(source, self._usable)
                await self._until_told(watch, context, aside)
        finally:
            for one in (context, aside):
                one.close()
            await upstream.close()
            if self._served:
                self._console.summary(self._usage, time.monotonic() - began)
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
        server = start_offline_server(worker_environment(), self._options.offline_arguments)
        self._stack.enter_context(contextlib.closing(server))
        made = list(enumerate(server.credentials(), 1))
        return [
            replace(one, name=f"{provider}-{number}", provider=provider)
            for provider in PROVIDERS
            for number, one in made
        ]

    def _host_log(self) -> FilePeerLog:
        name = f"{os.getpid()}-{time.time_ns()}"
        log = FilePeerLog(self._home.open().quota, name)
        return self._stack.enter_context(contextlib.closing(log))

    def _broker(self, credentials: list[Credential], peers: PeerLog) -> LeaseBroker:
        budget = Budget(self._prices, self._settings.budget)
        lease_manager = LeaseManager(Pool(credentials), random.random, budget)
        return LeaseBroker(lease_manager, peers, host_clock, self._news)

    # What happens while it serves.

    async def _until_told(
        self, watch: CredentialWatch | None, context: LeaseBroker, aside: LeaseBroker
    ) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        if self._options.ends_with_stdin:
            watch_stdin(lambda: loop.call_soon_threadsafe(stop.set))
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY if watch else None)
            if watch:
                self._poll_credentials(watch, context, aside)

    def _poll_credentials(self, watch: CredentialWatch, context: LeaseBroker, aside: LeaseBroker) -> None:
        match watch():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._console.news(rejected)
            case credentials:
                context.replace(credentials)
                aside.replace(_for_the_side(credentials))

    def _news(self, event: events.News) -> None:
        self._console.news(event)
        if self._programs and not isinstance(event, events.CallCompleted):
            self._programs.on_event(event, round(time.time(), 3))

    def _over(self, record: CallRecord) -> None:
        self._usage.add(record)
        self._console.call_ended(record)
        if self._programs and record.usage.calls:
            counted = events.CallCompleted(record.item, record.key, record.model, record.usage, record.cost)
            self._programs.on_event(counted, round(time.time(), 3))

    def _unaffordable(self, asked: ProxyRequest) -> str | None:
        free = asked.is_unmetered or self._options.offline
        if self._settings.budget is None or free or self._prices.of(asked.model) is not None:
            return None
        return (
            f"a budget needs the price of {asked.model or 'the model'}: give it in agentos.toml as "
            f'[prices."{asked.model}"] with input and output, in dollars per million tokens'
        )


def _side_desk(credentials: list[Credential], console: GatewayConsole) -> LeaseBroker:
    """For calls that no model works for: they draw on no quota, so they wait for nobody's turn."""
    lease_manager = LeaseManager(Pool(_for_the_side(credentials)), random.random, Budget(PriceList()))
    return LeaseBroker(lease_manager, NoPeers(), host_clock, console.news)


def _for_the_side(credentials: list[Credential]) -> list[Credential]:
    return [replace(one, concurrency=SIDE_CALLS, rates=()) for one in credentials]


def _first_line() -> str:
    return sys.stdin.readline().strip()
