"""Composition root of the gateway: builds its parts and serves until it is stopped."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.file import price_list
from agentos.config.settings import Settings, environment, worker_environment
from agentos.core.errors import PreflightError
from agentos.core.protocol import events
from agentos.core.protocol.codec import EventEncoder
from agentos.core.protocol.ports import Clock, PeerLog
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.kept_keys import KeptKeys
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.text.secrets import Redactor
from agentos.gateway.accounts import Account, Accounts, Declined, budget_header
from agentos.gateway.calls_in_flight import CallsInFlight
from agentos.gateway.console import GatewayConsole
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.forwarder import WaitListener
from agentos.gateway.handler import CallPolicy, RequestHandler
from agentos.gateway.lease_broker import LeaseBroker, LeaseBrokers, without_limits
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.stdin_lines import StdinLines
from agentos.gateway.token_registry import TokenRegistry
from agentos.gateway.tokens import TokenSigner
from agentos.gateway.upstream import Upstream
from agentos.gateway.usage import CallRecord, UsageByItem
from agentos.http.connection import HttpRequest
from agentos.http.metrics import Metrics, serving_metrics
from agentos.http.server import Endpoint, is_loopback, listening
from agentos.http.tls import ServerCertificate
from agentos.models.refusal_base import BUDGET_HEADER
from agentos.offline.child import start_offline_server
from agentos.outputs.audit import JsonLines
from agentos.outputs.writer import LineWriter
from agentos.platform_support import host_clock, platform
from agentos.storage.credentials.file_parser import PROVIDERS
from agentos.storage.credentials.reader import CredentialSource, CredentialWatch, no_key
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog, NoPeers
from agentos.storage.peer_log_views import other_version_warning

MAX_BODY_BYTES = 128 * 1024 * 1024
CREDENTIAL_POLL_INTERVAL = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """Where a shared gateway listens; the PEM files `certificate` and `key` are required beyond loopback."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of one `agentos gateway`.

    With `ends_with_stdin` it stops when its standard input is closed. The first line there is a JSON object with the
    token seed and the variables that hold keys; each further one is an item whose program has ended, as a JSON string,
    and is answered with `{"settled": ITEM}` once the item's calls are counted. With `listen` it is a shared gateway: its
    tokens come from the home's registry and stay valid when it restarts.
    """

    settings: Settings
    max_wait: float  # seconds
    port: int = 0
    offline: bool = False
    offline_arguments: tuple[str, ...] = ()
    ends_with_stdin: bool = False
    emit_events: bool = False
    listen: SharedAddress | None = None
    metrics: tuple[str, int] | None = None
    log_json: bool = False
    traces: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """A gateway that is accepting requests: its URL, its providers and the signer of its tokens."""

    url: str
    providers: tuple[str, ...]
    signer: TokenSigner


def run_gateway(options: GatewayOptions, on_ready: Callable[[Ready], None]) -> int:
    """Serves until SIGINT, SIGTERM, SIGHUP or, if `ends_with_stdin`, the end of standard input."""
    # The keys are in this process's memory, and agents run as the same user.
    platform().disable_core_dumps()
    stdin = StdinLines() if options.ends_with_stdin else None
    received = json.loads(stdin.next() or b"{}") if stdin else {}
    signer = TokenSigner(received["seed"]) if "seed" in received else TokenSigner()
    variables = {**environment(), **received.get("environment", {})}
    with contextlib.ExitStack() as stack:
        return asyncio.run(_Gateway(options, signer, variables, stdin, stack).serve(on_ready))


def _gateway_metrics() -> Metrics:
    metrics = Metrics()
    metrics.counter("agentos_gateway_calls_total", "Calls by provider and HTTP status.")
    metrics.counter(
        "agentos_gateway_refusals_total", "Attempts that a provider refused, so that the call was repeated."
    )
    metrics.counter(
        "agentos_gateway_failures_total", "Attempts that ended in a server error or without an answer."
    )
    metrics.counter("agentos_gateway_call_seconds_total", "Seconds that calls took, waits included.")
    metrics.counter("agentos_gateway_wait_seconds_total", "Seconds that calls waited for a key.")
    metrics.counter(
        "agentos_gateway_cost_dollars_total", "Cost of the calls whose price is known, in US dollars."
    )
    metrics.counter("agentos_gateway_tokens_total", "Tokens by provider and kind.")
    return metrics


def _certificate(address: SharedAddress | None) -> ServerCertificate | None:
    if address and address.certificate and address.key:
        return ServerCertificate(address.certificate, address.key)
    if address and address.host != "localhost" and not is_loopback(address.host):
        raise PreflightError(
            f"--listen {address.host} accepts calls from other machines: prompts and tokens would cross the network "
            "unencrypted. Add --tls-cert FILE and --tls-key FILE, or listen on 127.0.0.1"
        )
    return None


class _Gateway:
    """Builds the parts in the order in which they are needed; `stack` closes them."""

    def __init__(
        self,
        options: GatewayOptions,
        signer: TokenSigner,
        variables: Mapping[str, str],
        stdin: StdinLines | None,
        stack: contextlib.ExitStack,
    ) -> None:
        self._options = options
        self._stdin = stdin
        self._variables = variables
        self._settings = options.settings
        self._signer = signer
        self._stack = stack
        self._home = Home(options.settings.home)
        self._registry = TokenRegistry(self._home.gateway) if options.listen else None
        self._certificate = _certificate(options.listen)
        self._redact = Redactor()
        self._prices = price_list(options.settings.prices)
        self._usage = UsageByItem()
        self._metrics = _gateway_metrics()
        self._async_stack = contextlib.AsyncExitStack()
        self._accounts: Accounts | None = None
        if options.listen:
            accounts = Accounts(self._home.open().gateway, self._prices)
            self._accounts = stack.enter_context(contextlib.closing(accounts))
        stderr = stack.enter_context(contextlib.closing(LineWriter(2)))
        self._console = GatewayConsole(stderr.write, self._redact, time.time, as_json=options.log_json)
        self._json_events: JsonLines | None = None
        self._stdout: LineWriter | None = None
        self._in_flight = CallsInFlight(self._report_settled)
        self._trace_call = self._call_tracer()

    async def serve(self, on_ready: Callable[[Ready], None]) -> int:
        options, source = self._options, self._credential_source()
        credentials = (
            source.adjusted(self._offline_credentials()) if options.offline else self._usable(source.read())
        )
        brokers = self._brokers(credentials)
        upstream = Upstream(self._variables)
        tls = self._certificate.context if self._certificate else None
        policy = CallPolicy(
            options.max_wait,
            self._admit,
            lambda item: WaitListener(
                lambda: self._emit(events.KeyWaitStarted(item)),
                lambda: self._emit(events.KeyWaitEnded(item)),
                lambda reason: self._console.call_waiting(item, reason),
            ),
            self._call_ended,
            lambda reason: self._emit(events.BudgetReached(reason)),
            "https" if tls else "http",
            tuple({credential.provider: None for credential in credentials if credential.enabled}),
            self._accounts_of,
            self._settle,
            on_start=self._in_flight.begin,
            redact=self._redact,
            shows_keys=bool(options.listen),
        )
        handler = RequestHandler(
            self._registry or self._signer, brokers, upstream, Clock(host_clock, time.time), policy
        )
        address = options.listen or SharedAddress("127.0.0.1", options.port)
        started_at = time.monotonic()
        ready = False
        try:
            if options.metrics:
                await self._async_stack.enter_async_context(
                    serving_metrics(self._metrics, *options.metrics, brokers.metered.has_active_key)
                )
            async with listening(
                handler.handle,
                Endpoint(address.host, address.port, tls),
                max_body=MAX_BODY_BYTES,
                admit=handler.admit,
            ) as url:
                keys = Counter(credential.provider for credential in credentials if credential.enabled)
                ready = True
                on_ready(Ready(url, tuple(keys), self._signer))
                if options.emit_events:
                    self._stdout = self._stack.enter_context(contextlib.closing(LineWriter(1)))
                    self._json_events = JsonLines(self._stdout.write, EventEncoder(self._redact))
                else:
                    self._console.started(url, keys, options.max_wait)
                    if self._registry and not any(token.is_valid for token in self._registry.tokens()):
                        self._console.warn(
                            "No token is valid yet. Issue one with: agentos gateway token NAME"
                        )
                watch = None if options.offline else CredentialWatch(source, self._usable)
                await self._wait_for_stop(watch, brokers)
        finally:
            await self._async_stack.aclose()
            brokers.close()
            await upstream.close()
            if ready and not options.emit_events:
                self._console.summary(self._usage, time.monotonic() - started_at)
        return 0

    def _credential_source(self) -> CredentialSource:
        settings = self._settings
        return CredentialSource(
            self._home.credentials, self._variables, settings.credential_limit, settings.key_concurrency
        )

    def _usable(self, found: list[Credential]) -> list[Credential]:
        """The credentials without their models: these apply to runs, whereas an agent names its model itself.

        Makes sure that their secrets are redacted. Raises PreflightError if none is enabled.
        """
        self._redact.add(credential.secret for credential in found)
        if not any(credential.enabled for credential in found):
            raise no_key("gemini", self._home.credentials)
        return [replace(credential, model=None) for credential in found]

    def _offline_credentials(self) -> list[Credential]:
        """One credential per provider and key, because the offline server speaks every wire format."""
        server = start_offline_server(worker_environment(), self._options.offline_arguments)
        self._stack.enter_context(contextlib.closing(server))
        numbered = list(enumerate(server.credentials(), 1))
        return [
            replace(credential, name=f"{provider}-{number}", provider=provider)
            for provider in PROVIDERS
            for number, credential in numbered
        ]

    def _brokers(self, credentials: list[Credential]) -> LeaseBrokers:
        peers: PeerLog = NoPeers()
        if not self._options.offline:
            name = f"{os.getpid()}-{time.time_ns()}"
            quota = self._home.open().quota
            if warning := other_version_warning(quota):
                self._console.warn(warning)
            log = FilePeerLog(quota, name)
            peers = self._stack.enter_context(contextlib.closing(log))
        budget = Budget(self._prices, self._settings.budget)
        kept = KeptKeys()  # so that an item's model calls find the files that it uploaded
        metered = LeaseManager(Pool(credentials, kept_keys=kept), random.random, budget)
        unmetered = LeaseManager(
            Pool(without_limits(credentials), kept_keys=kept), random.random, Budget(PriceList())
        )
        return LeaseBrokers(
            LeaseBroker(metered, peers, host_clock, self._publish),
            LeaseBroker(unmetered, NoPeers(), host_clock, self._console.on_event),
        )

    async def _wait_for_stop(self, watch: CredentialWatch | None, brokers: LeaseBrokers) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        if self._stdin:
            self._stdin.follow(
                lambda line: loop.call_soon_threadsafe(self._in_flight.settle, json.loads(line)),
                lambda: loop.call_soon_threadsafe(stop.set),
            )
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                polls = watch or self._certificate
                await asyncio.wait_for(stop.wait(), CREDENTIAL_POLL_INTERVAL if polls else None)
            if watch:
                self._poll_credentials(watch, brokers)
            self._poll_certificate()

    def _poll_certificate(self) -> None:
        try:
            if self._certificate and self._certificate.reload_if_changed():
                self._console.warn("The certificate has changed. New connections use the new one.")
        except PreflightError as error:
            self._console.warn(f"Still using the old certificate: {error}")

    def _poll_credentials(self, watch: CredentialWatch, brokers: LeaseBrokers) -> None:
        match watch():
            case None:
                pass
            case events.CredentialsRejected() as rejected:
                self._console.on_event(rejected)
            case credentials:
                brokers.replace_credentials(credentials)

    def _publish(self, event: events.SchedulerEvent) -> None:
        """Report the event to the run that started the gateway, or to people."""
        if self._json_events is None:
            self._console.on_event(event)
        # Calls are reported by _call_ended, with the item instead of the lease holder.
        elif not isinstance(event, events.CallCompleted):
            self._json_events.on_event(event, round(time.time(), 3))

    def _call_ended(self, record: CallRecord) -> None:
        self._usage.add(record)
        self._count(record)
        self._trace_call(record)
        if self._json_events is None:
            self._console.call_ended(record)
        elif record.usage.calls:
            self._emit(
                events.CallCompleted(
                    record.item,
                    record.key,
                    record.model,
                    record.usage,
                    record.cost,
                    round(record.seconds, 3),
                    round(record.waited, 3),
                )
            )
        self._in_flight.end(record.item)

    def _report_settled(self, item: str) -> None:
        if self._stdout:
            self._stdout.write(json.dumps({"settled": item}))

    def _call_tracer(self) -> Callable[[CallRecord], None]:
        """Load OpenTelemetry only if traces were requested."""
        if not self._options.traces:
            return lambda record: None
        from agentos.gateway.call_traces import write_call_span
        from agentos.outputs.span_export import SpanWriter

        writer = SpanWriter("agentos-gateway", f"{socket.gethostname()}:{os.getpid()}", self._console.warn)
        spans = self._stack.enter_context(contextlib.closing(writer))
        return lambda record: write_call_span(spans.write, record, time.time())

    def _count(self, record: CallRecord) -> None:
        provider = ("provider", record.provider)
        self._metrics.add("agentos_gateway_calls_total", (provider, ("status", str(record.status))))
        self._metrics.add("agentos_gateway_refusals_total", (provider,), record.refused)
        self._metrics.add("agentos_gateway_failures_total", (provider,), record.failed)
        self._metrics.add("agentos_gateway_call_seconds_total", (provider,), record.seconds)
        self._metrics.add("agentos_gateway_wait_seconds_total", (provider,), record.waited)
        self._metrics.add("agentos_gateway_cost_dollars_total", (provider,), record.cost or 0.0)
        usage = record.usage
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            self._metrics.add("agentos_gateway_tokens_total", (provider, ("kind", kind)), tokens)

    def _emit(self, event: events.Event) -> None:
        if self._json_events:
            self._json_events.on_event(event, round(time.time(), 3))

    def _accounts_of(self, item: str, request: HttpRequest) -> list[Account]:
        """The accounts whose budgets apply to a call: its token's, and that of the submission it names."""
        if self._registry is None:
            return []
        named = budget_header(dict(request.headers).get(BUDGET_HEADER, ""))
        budget = self._registry.budget_of(item)
        own = [] if budget is None else [Account(f"token {item}", budget)]
        return [*own, named] if named else own

    def _settle(self, request: ProxyRequest, accounts: list[Account], cost: float | None) -> None:
        if self._accounts:
            self._accounts.settle(accounts, request, cost)

    async def _admit(self, request: ProxyRequest, accounts: list[Account]) -> Declined | None:
        if problem := self._missing_price_problem(request):
            return Declined(GatewayError.UNPAID, problem)
        if not self._accounts or not accounts:
            return None
        return await self._accounts.admit(accounts, request, self._options.max_wait)

    def _missing_price_problem(self, request: ProxyRequest) -> str | None:
        free = request.is_unmetered or self._options.offline
        if self._settings.budget is None or free or self._prices.of(request.model) is not None:
            return None
        return (
            f"--budget needs a price for {request.model or 'the model'}: add "
            f'[prices."{request.model}"] to agentos.toml, with input and output in USD per million tokens'
        )
