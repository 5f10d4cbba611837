"""Model access of a worker: each call leases a key, and repeats with another one when it is refused."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.commands import GrantLease
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, Provider
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.refusals import Refusal
from agentos.core.text.line_assembler import clean, one_line
from agentos.core.text.secrets import Redactor
from agentos.models import CHARS_PER_TOKEN

MAX_MODEL_NAME = 200  # characters
MAX_REASON = 1000  # characters of an error that a server words


class LeasedModel:
    """Leases a key from the coordinator for each call, and returns it with usage, limits and refusal.

    Grants arrive through `grant`. A call ends with a response, with BadRequest or with its cancellation: refusals
    never end it.
    """

    def __init__(
        self,
        item: str,
        roles: tuple[RoleModel, ...],
        providers: Mapping[str, Callable[[], Provider]],
        send_event: Callable[[WorkerEvent], None],
    ) -> None:
        self._item = item
        self._roles = {role.role: role for role in roles}
        self._factories = providers
        self._providers: dict[str, Provider] = {}
        self._send_event = send_event
        self._grants: dict[str, asyncio.Future[GrantLease]] = {}
        self._stopped = False
        self._calls_done = 0
        self._last_output_tokens: dict[str, int] = {}

    def grant(self, command: GrantLease) -> None:
        """Hands a granted key to the call that waits for it; if there is none, returns it unused."""
        waiting = self._grants.pop(command.call, None)
        if waiting is None or waiting.done():
            self._send_event(LeaseReleased(self._item, command.lease, 0.0))
        else:
            waiting.set_result(command)

    def stop_waiting(self) -> None:
        """Cancels the calls that wait for a key, and every later call."""
        self._stopped = True
        for waiting in self._grants.values():
            waiting.cancel()

    async def complete(self, call: str, request: ModelRequest) -> ModelResponse:
        """Returns the response, however many keys it takes."""
        if (role := self._roles.get(request.role)) is None:
            raise BadRequest(f"unknown role {request.role!r}: choose one of {', '.join(self._roles)}")
        while True:
            lease = await self._lease(call, role, request)
            try:
                response = await self._attempt(lease, request)
            except CallRefused:
                continue
            self._calls_done += 1
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
                input_tokens=len(request.prompt) // CHARS_PER_TOKEN,
                output_tokens=self._last_output_tokens.get(role.role, 0),
                calls_done=self._calls_done,
            )
        )
        return await waiting

    async def _attempt(self, lease: GrantLease, request: ModelRequest) -> ModelResponse:
        started_at, model = time.monotonic(), lease.model or ""
        response: ModelResponse | None = None
        refusal: Refusal | None = None
        key = LeasedKey(lease.key, lease.secret.reveal(), lease.base_url, model)
        # The provider may echo the key; it must not get into a document, an error or a checkpoint.
        redact = Redactor((lease.secret,))
        try:
            response = _sanitize(await self._provider(lease.provider).complete(request, key), redact)
            return response
        except CallRefused as error:
            reason = one_line(redact(error.refusal.reason[:MAX_REASON]))
            refusal = replace(error.refusal, reason=reason)
            raise
        except BadRequest as error:
            raise BadRequest(one_line(redact(str(error)[:MAX_REASON]))) from None
        finally:
            self._send_event(
                LeaseReleased(
                    item=self._item,
                    lease=lease.lease,
                    seconds=time.monotonic() - started_at,
                    usage=response.usage if response else Usage(),
                    refusal=refusal,
                    model=response.model if response else model,
                    limits=response.limits if response else (),
                )
            )

    def _provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self._factories[name]()
        return self._providers[name]


def _sanitize(response: ModelResponse, redact: Callable[[str], str]) -> ModelResponse:
    """The one place that everything a server says passes before anything else sees it.

    Keys are masked. Text is made storable: no terminal escapes, no control characters, no half characters, which
    could neither be written to a document nor kept in a checkpoint.
    """
    lines = redact(response.text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = "\n".join(clean(line) for line in lines).encode("utf-8", "replace").decode("utf-8")
    if not text.strip():
        raise BadRequest("the model returned no text that can be printed")
    return replace(response, text=text, model=one_line(redact(response.model[:MAX_MODEL_NAME])))
