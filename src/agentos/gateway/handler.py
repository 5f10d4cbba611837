"""Request handler of the gateway: authenticates a request, forwards it, and reports how the call ended."""

import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentos.core.protocol.ports import Clock
from agentos.core.protocol.trace_context import TRACEPARENT
from agentos.gateway.access_denials import AccessDenials
from agentos.gateway.accounts import Account, Declined
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.dialects.base import JSON, GatewayError, plain_error, send_error, send_response
from agentos.gateway.forwarder import CallContext, Forwarder, WaitListener
from agentos.gateway.lease_broker import RETRY_AFTER_BUSY, LeaseBrokers, NoKey
from agentos.gateway.request_parser import ProxyRequest, parse_request, wants_websocket
from agentos.gateway.retry_positions import RetryPositions
from agentos.gateway.tokens import TokenVerifier
from agentos.gateway.upstream import Upstream
from agentos.gateway.usage import CallEnding, CallRecord
from agentos.http.connection import Connection, HttpRequest
from agentos.http.metrics import HEALTH_PATHS, respond_health
from agentos.http.server import has_loopback_host
from agentos.models.refusal_base import OVER_BUDGET_HEADER
from agentos.outputs.key_rows import key_json

_NOT_AUTHENTICATED = (
    "invalid token: use the one this gateway printed, which is valid only while it runs, or for a shared gateway "
    'one that "agentos gateway token" has issued and nobody has revoked'
)
PROVIDERS_PATH, KEYS_PATH = "/providers", "/keys"
_UNKNOWN_PATH = f"unknown path: expected one that starts with /{', /'.join(DIALECTS)}"
_NO_WEBSOCKETS = "WebSockets are not supported: send the request without an Upgrade header"


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """What the gateway allows for a call, and whom it notifies.

    `admit` returns why a request must not be made, or None. `waits` creates the listener for an item's calls,
    `on_budget` is called with the reason when a call would exceed the budget, `on_start` with the item and `on_end`
    once for every forwarded call. `scheme` is that of the gateway's own URL, `providers` are those that it has keys
    for. With `shows_keys`, anybody with a token may see the state of the keys.
    """

    max_wait: float  # seconds
    admit: Callable[[ProxyRequest, list[Account]], Awaitable[Declined | None]]
    waits: Callable[[str], WaitListener]
    on_end: Callable[[CallRecord], None]
    on_budget: Callable[[str], None]
    scheme: str = "http"
    providers: tuple[str, ...] = ()
    accounts_of: Callable[[str, HttpRequest], list[Account]] = lambda item, request: []
    settle: Callable[[ProxyRequest, list[Account], float | None], None] = lambda *_: None
    on_start: Callable[[str], None] = lambda item: None
    redact: Callable[[str], str] = str
    shows_keys: bool = False


class RequestHandler:
    """Answers every request with the provider's response, or with an error in the provider's own format.

    Only requests with a token that `tokens` accepts are forwarded and, without TLS, only those sent to a loopback host
    name.
    """

    def __init__(
        self,
        tokens: TokenVerifier,
        brokers: LeaseBrokers,
        upstream: Upstream,
        clock: Clock,
        policy: CallPolicy,
    ) -> None:
        self._tokens = tokens
        self._brokers = brokers
        self._upstream = upstream
        self._clock = clock
        self._policy = policy
        self._positions = RetryPositions(clock.monotonic)
        self._denials = AccessDenials()
        self._call_ids = itertools.count(1)

    def admit(self, head: HttpRequest, connection: Connection) -> bool:
        """Decide before the body is read whether to handle the request; if not, respond with an error."""
        if head.target in HEALTH_PATHS:
            # Load balancers have no token; they only learn whether calls can be served.
            respond_health(connection, head.target, self._brokers.metered.has_active_key)
        elif self._policy.scheme == "http" and not has_loopback_host(head.headers):
            plain_error(
                connection, 403, "only requests to a loopback host name such as localhost are accepted"
            )
        elif head.target == PROVIDERS_PATH:
            self._send_json(head, connection, lambda: {"providers": self._policy.providers})
        elif head.target == KEYS_PATH and self._policy.shows_keys:
            self._send_json(head, connection, self._keys)
        elif (request := parse_request(head, self._policy.scheme)) is None:
            plain_error(connection, 404, _UNKNOWN_PATH)
        elif self._item(request) is None and head.method == "HEAD":
            # Agents probe their base URL this way, before they send a key.
            send_response(connection, 200, (), b"")
        elif self._item(request) is None:
            send_error(connection, request.dialect, GatewayError.TOKEN, _NOT_AUTHENTICATED)
        elif wants_websocket(head):
            send_error(connection, request.dialect, GatewayError.UPGRADE, _NO_WEBSOCKETS)
        else:
            return True
        return False

    def _keys(self) -> dict[str, object]:
        """The state of the keys for the page of a fleet, without secrets and addresses."""
        found = [{**key_json(row), "base_url": None} for row in self._brokers.metered.key_rows()]
        return {"now": self._clock.wall(), "keys": found}

    def _send_json(
        self, head: HttpRequest, connection: Connection, content: Callable[[], dict[str, object]]
    ) -> None:
        """Used by the machines of a fleet, which have only a token."""
        authorization = next((value for name, value in head.headers if name.lower() == "authorization"), "")
        if self._tokens.item(authorization.removeprefix("Bearer ").strip()) is None:
            plain_error(connection, 401, _NOT_AUTHENTICATED)
        else:
            body = self._policy.redact(json.dumps(content(), ensure_ascii=False)).encode("utf-8", "replace")
            send_response(connection, 200, (JSON,), body)

    async def handle(self, incoming: HttpRequest, connection: Connection) -> None:
        request = parse_request(incoming, self._policy.scheme)
        item = self._item(request) if request else None
        assert request and item, "`admit` has accepted this request"
        accounts = self._policy.accounts_of(item, incoming)
        if declined := await self._policy.admit(request, accounts):
            retry_after = RETRY_AFTER_BUSY if declined.is_early else None
            hint = ((OVER_BUDGET_HEADER, declined.over_budget),) if declined.over_budget else ()
            send_error(connection, request.dialect, declined.error, declined.reason, retry_after, hint)
        else:
            record = CallRecord(item, request.dialect.provider, request.model)
            record.traceparent = dict(incoming.headers).get(TRACEPARENT, "")
            await self._forward(record, request, connection, accounts)

    def _item(self, request: ProxyRequest) -> str | None:
        """The item for which one of the request's tokens was issued."""
        return next((found for token in request.tokens if (found := self._tokens.item(token))), None)

    async def _forward(
        self, record: CallRecord, request: ProxyRequest, connection: Connection, accounts: list[Account]
    ) -> None:
        item = record.item
        # Each call is a separate lease holder, so it can be cancelled without affecting the item's other calls.
        holder = f"{item} {next(self._call_ids)}"
        started_at, since = self._clock.monotonic(), self._positions.take(request)
        broker = self._brokers.for_request(request)
        context = CallContext(holder, broker, self._upstream, self._clock, self._denials, since)
        forwarder = Forwarder(
            context,
            record,
            request,
            connection,
            self._policy.waits(item),
        )
        self._policy.on_start(item)
        try:
            await forwarder.forward(started_at + self._policy.max_wait)
        except NoKey as error:
            record.ending, record.status = CallEnding.NO_KEY, error.error.value
            if error.error is GatewayError.UNPAID:
                self._policy.on_budget(str(error))
            if error.retry_after is not None:
                self._positions.keep(request, started_at if since is None else since, error.retry_after)
            send_error(connection, request.dialect, error.error, str(error), error.retry_after)
        finally:
            record.seconds = self._clock.monotonic() - started_at
            self._policy.settle(request, accounts, None if record.is_abandoned else record.cost)
            self._policy.on_end(record)
