"""A model whose every call uses a leased key, another one when it is refused."""

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
from agentos.core.text.secrets import Redactor

CHARACTERS_A_TOKEN = 4


class LeasedModel:
    """Asks its coordinator for a key before each call and gives it back after, with what it learnt."""

    def __init__(
        self,
        item: str,
        roles: tuple[RoleModel, ...],
        providers: Mapping[str, Callable[[], Provider]],
        tell: Callable[[WorkerEvent], None],
    ) -> None:
        self._item = item
        self._roles = {role.role: role for role in roles}
        self._factories = providers
        self._providers: dict[str, Provider] = {}
        self._send_event = tell
        self._grants: dict[str, asyncio.Future[GrantLease]] = {}
        self._stopped = False
        self._calls_done = 0
        self._usual: dict[str, int] = {}

    def grant(self, command: GrantLease) -> None:
        """A key has come; one that nobody waits for any more goes back unused."""
        waiting = self._grants.pop(command.call, None)
        if waiting is None or waiting.done():
            self._send_event(LeaseReleased(self._item, command.lease, 0.0))
        else:
            waiting.set_result(command)

    def stop_waiting(self) -> None:
        """No call begins any more: whoever waits for a key is cancelled."""
        self._stopped = True
        for waiting in self._grants.values():
            waiting.cancel()

    async def complete(self, call: str, question: ModelRequest) -> ModelResponse:
        """The answer, however many keys it takes; refusals never end a call, a bad request does."""
        if (role := self._roles.get(question.role)) is None:
            raise BadRequest(f"no role is called {question.role!r}; there are: {', '.join(self._roles)}")
        while True:
            lease = await self._lease(call, role, question)
            try:
                answer = await self._try(lease, question)
            except CallRefused:
                continue
            self._calls_done += 1
            self._usual[question.role] = answer.usage.output_tokens
            return answer

    async def _lease(self, call: str, role: RoleModel, question: ModelRequest) -> GrantLease:
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
                input_tokens=len(question.prompt) // CHARACTERS_A_TOKEN,
                output_tokens=self._usual.get(role.role, 0),
                calls_done=self._calls_done,
            )
        )
        return await waiting

    async def _try(self, lease: GrantLease, question: ModelRequest) -> ModelResponse:
        began, model = time.monotonic(), lease.model or ""
        answer: ModelResponse | None = None
        refusal: Refusal | None = None
        access = LeasedKey(lease.key, lease.secret.reveal(), lease.base_url, model)
        # Whoever answers has seen the key: it must not come back in a document, an error, a checkpoint.
        redact = Redactor((lease.secret,))
        try:
            answer = await self._provider(lease.provider).complete(question, access)
            answer = replace(answer, text=redact(answer.text))
            return answer
        except CallRefused as error:
            refusal = error.refusal
            raise
        except BadRequest as error:
            raise BadRequest(redact(str(error))) from None
        finally:
            self._send_event(
                LeaseReleased(
                    item=self._item,
                    lease=lease.lease,
                    seconds=time.monotonic() - began,
                    usage=answer.usage if answer else Usage(),
                    refusal=refusal,
                    model=answer.model if answer else model,
                    limits=answer.limits if answer else (),
                )
            )

    def _provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self._factories[name]()
        return self._providers[name]
