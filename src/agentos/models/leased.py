"""A model whose every call uses a leased key, another one when it is refused."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from agentos.core.commands import GrantLease
from agentos.core.errors import BadRequest, CallRefused
from agentos.core.events import LeaseReturned, LeaseWanted, WorkerEvent
from agentos.core.orders import RoleModel
from agentos.core.ports import Access, Answer, Provider, Question
from agentos.core.results import Usage
from agentos.core.secrets import Redactor


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
        self._tell = tell
        self._grants: dict[str, asyncio.Future[GrantLease]] = {}
        self._stopped = False

    def grant(self, command: GrantLease) -> None:
        """A key has come; one that nobody waits for any more goes back unused."""
        waiting = self._grants.pop(command.call, None)
        if waiting is None or waiting.done():
            self._tell(LeaseReturned(self._item, command.lease, 0.0))
        else:
            waiting.set_result(command)

    def stop_waiting(self) -> None:
        """No call begins any more: whoever waits for a key is cancelled."""
        self._stopped = True
        for waiting in self._grants.values():
            waiting.cancel()

    async def ask(self, call: str, question: Question) -> Answer:
        """The answer, however many keys it takes; refusals never end a call, a bad request does."""
        role = self._roles[question.role]
        while True:
            lease = await self._lease(call, role)
            try:
                return await self._try(lease, question, role)
            except CallRefused:
                continue

    async def _lease(self, call: str, role: RoleModel) -> GrantLease:
        if self._stopped:
            raise asyncio.CancelledError
        waiting: asyncio.Future[GrantLease] = asyncio.get_running_loop().create_future()
        self._grants[call] = waiting
        self._tell(LeaseWanted(self._item, call, role.providers))
        return await waiting

    async def _try(self, lease: GrantLease, question: Question, role: RoleModel) -> Answer:
        began, usage, refusal, model = (
            time.monotonic(),
            Usage(),
            None,
            lease.model or role.model,
        )
        access = Access(lease.key, lease.secret.reveal(), lease.base_url, model)
        # Whoever answers has seen the key: it must not come back in a document, an error, a checkpoint.
        redact = Redactor((lease.secret,))
        try:
            answer = await self._provider(lease.provider).ask(question, access)
            usage, model = answer.usage, answer.model
            return replace(answer, text=redact(answer.text))
        except CallRefused as error:
            refusal = error.refusal
            raise
        except BadRequest as error:
            raise BadRequest(redact(str(error))) from None
        finally:
            seconds = time.monotonic() - began
            self._tell(LeaseReturned(self._item, lease.lease, seconds, usage, refusal, model))

    def _provider(self, name: str) -> Provider:
        if name not in self._providers:
            self._providers[name] = self._factories[name]()
        return self._providers[name]
