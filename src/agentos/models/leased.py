"""Model access of a worker: each call leases a key and is repeated with another one when it is refused."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from agentos.core.constants import DEFAULT_CALL_TIMEOUT
from agentos.core.errors import BadRequest, CallRefused, EmptyAnswer, ItemError, LimitReached, StreamCut
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import CallProgress, LeaseReleased, LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import (
    LeasedKey,
    ModelRequest,
    ModelResponse,
    OnPiece,
    PaidCall,
    Provider,
)
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.line_assembler import one_line
from agentos.core.text.secrets import Redactor
from agentos.models import CHARS_PER_TOKEN
from agentos.models.sanitize import PieceSanitizer, model_label, sanitize

MAX_REASON = 1000  # characters of a server's error message
MAX_CUTS = 2  # in a row, for one call
PROGRESS_INTERVAL = 5.0  # seconds
_REQUEST_ID = re.compile(r"[0-9a-fA-F-]{6,}|\d+")


class LeasedModel:
    """Leases a key from the coordinator for each call, and returns it with usage, limits and refusal.

    Grants arrive through `grant`. A call ends with a response, with BadRequest, by cancellation, with LimitReached when the
    budget of its submission is spent, or with an ItemError when retrying is pointless: twice in a row no token arrived in
    time, or the provider answers other calls but fails this one repeatedly with the same error. Other refusals never end
    it, unless part of the answer has been passed to `on_piece`: then the call ends with StreamCut, because another attempt
    would give a different answer.
    """

    def __init__(  # noqa: PLR0913 - built in one place
        self,
        item: str,
        roles: tuple[RoleModel, ...],
        providers: Mapping[str, Callable[[], Provider]],
        send_event: Callable[[WorkerEvent], None],
        call_timeouts: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        headers: Callable[[str], tuple[tuple[str, str], ...]] = lambda lease: (),
    ) -> None:
        """`call_timeouts` are the seconds that a call may go without a token, by model; "" stands for all other models.
        `headers` gives the headers to send with the call of a lease."""
        self._headers = headers
        self._clock = clock
        self._item = item
        self._roles = {role.role: role for role in roles}
        self._factories = providers
        self._providers: dict[str, Provider] = {}
        self._send_event = send_event
        self._call_timeouts = call_timeouts or {}
        self._grants: dict[str, asyncio.Future[GrantLease]] = {}
        self._stopped = False
        self._active: set[str] = set()
        self._calls_begun = 0
        self.calls_done = 0
        """Calls that the item has made; the creator of this object may add those of earlier runs."""
        self._last_output_tokens: dict[str, int] = {}

    def grant(self, command: GrantLease) -> None:
        """Pass a granted key to the call that waits for it; if no call does, return it unused."""
        waiting = self._grants.pop(command.call, None)
        if waiting is None or waiting.done():
            self._send_event(LeaseReleased(self._item, command.lease, 0.0))
        else:
            waiting.set_result(command)

    def stop_waiting(self) -> None:
        """Cancel the calls that wait for a key, and every later call."""
        self._stopped = True
        for waiting in self._grants.values():
            waiting.cancel()

    async def complete(
        self, call: str, request: ModelRequest, on_piece: OnPiece | None = None
    ) -> ModelResponse:
        """Return the response, however many keys it takes; `on_piece` gets its pieces as they arrive."""
        if (role := self._roles.get(request.role)) is None:
            raise BadRequest(
                f"unknown role {request.role!r}: choose one of {', '.join(self._roles)}, "
                f"or add it to agentos.toml below [roles]"
            )
        request = replace(
            request,
            max_output_tokens=request.max_output_tokens or role.max_output_tokens,
            effort=request.effort or role.effort,
        )
        failures = _CallFailures()
        self._calls_begun += 1
        # Calls of parallel branches may have the same name, but leases are granted by name.
        call = f"{call}#{self._calls_begun}" if call in self._active else call
        self._active.add(call)
        try:
            return await self._complete(call, role, request, failures, on_piece)
        finally:
            self._active.discard(call)

    async def _complete(
        self,
        call: str,
        role: RoleModel,
        request: ModelRequest,
        failures: "_CallFailures",
        on_piece: OnPiece | None,
    ) -> ModelResponse:
        while True:
            lease = await self._lease(call, role, request)
            try:
                response = await self._attempt(lease, request, on_piece)
            except CallRefused as error:
                failures.add(error, lease)
                continue
            self.calls_done += 1
            self._last_output_tokens[request.role] = response.usage.output_tokens
            return response

    async def _lease(self, call: str, role: RoleModel, request: ModelRequest) -> GrantLease:
        if self._stopped:
            raise asyncio.CancelledError
        waiting: asyncio.Future[GrantLease] = asyncio.get_running_loop().create_future()
        self._grants[call] = waiting
        self._send_event(
            LeaseRequested(
                item=self._item,
                call=call,
                providers=role.providers,
                models=role.models,
                input_tokens=request.size // CHARS_PER_TOKEN,
                output_tokens=self._last_output_tokens.get(role.role, 0),
                calls_done=self.calls_done,
            )
        )
        return await waiting

    async def _attempt(
        self, lease: GrantLease, request: ModelRequest, on_piece: OnPiece | None
    ) -> ModelResponse:
        started_at, model = self._clock(), lease.model or ""
        response: ModelResponse | None = None
        refusal: Refusal | None = None
        progress = _Progress(self._item, self._send_event, self._clock)
        timeout = lease.call_timeout or self._call_timeout(model)
        headers = self._headers(lease.lease)
        key = LeasedKey(lease.key, lease.secret.reveal(), lease.base_url, model, timeout, headers)
        # The provider may echo the key, which must not get into a document, an error or a checkpoint.
        redact = Redactor((lease.secret,))
        pieces = PieceSanitizer(redact, on_piece) if on_piece else None
        try:
            answer = await self._provider(lease.provider).complete(request, key, progress, pieces)
            response = sanitize(answer, redact, may_be_empty=bool(request.turns))
            response = replace(response, paid=PaidCall(lease.lease, lease.key, model))
            if pieces:
                pieces.close()
            return response
        except CallRefused as error:
            reason = one_line(redact(error.refusal.reason[:MAX_REASON]))
            refusal = replace(error.refusal, reason=reason)
            if pieces and pieces.passed_on:
                raise StreamCut(f"a streamed answer was cut off: {reason}") from error
            raise CallRefused(refusal, blame_after=error.blame_after) from error
        except EmptyAnswer:
            raise
        except BadRequest as error:
            raise BadRequest(one_line(redact(str(error)[:MAX_REASON]))) from None
        finally:
            self._send_event(
                LeaseReleased(
                    item=self._item,
                    lease=lease.lease,
                    seconds=self._clock() - started_at,
                    usage=response.usage if response else progress.usage,
                    refusal=refusal,
                    model=response.model if response else model_label(model),
                    limits=response.limits if response else (),
                )
            )

    def _call_timeout(self, model: str) -> float:
        return self._call_timeouts.get(model) or self._call_timeouts.get("") or DEFAULT_CALL_TIMEOUT

    def _provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self._factories[name]()
        return self._providers[name]


class _Progress:
    """What one call has used so far, reported to the coordinator every few seconds while tokens arrive."""

    def __init__(
        self, item: str, send_event: Callable[[WorkerEvent], None], clock: Callable[[], float]
    ) -> None:
        self.usage = Usage()
        self._item = item
        self._send_event = send_event
        self._clock = clock
        self._reported_at = clock()

    def __call__(self, usage: Usage) -> None:
        self.usage = usage
        if self._clock() >= self._reported_at + PROGRESS_INTERVAL:
            self._reported_at = self._clock()
            self._send_event(CallProgress(self._item, usage.output_tokens))


@dataclass(slots=True)
class _CallFailures:
    """The failures of one call so far; raises ItemError when another attempt would fail in the same way."""

    cuts: list[str] = field(default_factory=list)
    error: str = ""
    same_errors: int = 0
    answered_before: int = 0

    def add(self, failure: CallRefused, lease: GrantLease) -> None:
        refusal = failure.refusal
        if refusal.kind is RefusalKind.OVER_BUDGET:
            raise LimitReached(refusal.reason)
        if refusal.kind is RefusalKind.CUT:
            self._add_cut(refusal, lease)
        elif refusal.kind is RefusalKind.PROVIDER_ERROR and failure.blame_after is not None:
            self._add_error(refusal, lease, failure.blame_after)

    def _add_cut(self, refusal: Refusal, lease: GrantLease) -> None:
        self.cuts.append(refusal.reason)
        if len(self.cuts) >= MAX_CUTS:
            raise ItemError(
                f"the answer was cut off {len(self.cuts)} times in a row ({'; then '.join(self.cuts)})",
                (
                    f"give the model more time: call_timeout = 900 for {lease.key} in credentials.toml,",
                    "or in agentos.toml for all models, in seconds without a token",
                ),
            )

    def _add_error(self, refusal: Refusal, lease: GrantLease, blame_after: int) -> None:
        error = _REQUEST_ID.sub("#", refusal.reason)
        if error != self.error:
            self.error, self.same_errors, self.answered_before = error, 0, lease.answers
        self.same_errors += 1
        if self.same_errors >= blame_after and lease.answers > self.answered_before:
            raise ItemError(f"{lease.provider} fails this call but answers others: {refusal.reason}")
