"""agentos: its lease manager, pool and models, driven by an asyncio loop instead of the coordinator."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentos.core.errors import BadRequest, CallRefused
from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol.events import LeaseReleased, LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, OnPiece, OnProgress, PeerLog
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.peer_state import with_shared_lock
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.core.text.secrets import Secret
from agentos.models.gemini.refusals import read_refusal
from agentos.models.leased import LeasedModel
from agentos.platform_support import host_clock
from agentos.storage.peer_log import FilePeerLog, NoPeers
from bench.keypool.call import GeminiConnections
from bench.keypool.drive import SendCall
from bench.keypool.job import Job, JobKey, KnownLimit

MODEL = "offline-rules-1"
ROLES = (RoleModel("draft", ("gemini",), (MODEL,)),)
CALLS_OF_AN_ITEM = 4


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    connections = GeminiConnections(job.url)
    with contextlib.ExitStack() as stack:
        peers: PeerLog = NoPeers()
        if job.folder:
            peers = stack.enter_context(
                contextlib.closing(FilePeerLog(Path(job.folder), f"process-{job.process}"))
            )
        owner = Owner([_credential(key, job) for key in job.keys], peers)
        yield _Callers(job, owner, lambda: RawGemini(connections, job.names_limits)).send
        await connections.close()


class Owner:
    """The only task that touches the pool; shares it with other processes under the lock, as the coordinator does."""

    def __init__(self, credentials: list[Credential], peers: PeerLog) -> None:
        self._lease_manager = LeaseManager(Pool(credentials), random.random, Budget(PriceList()))
        self._peers = peers
        self._models: dict[str, LeasedModel] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add_item(self, item: str, model: LeasedModel) -> None:
        self._models[item] = model

    def drop_item(self, item: str) -> None:
        del self._models[item]
        self._lease_manager.drop_holder(item)

    def handle(self, event: WorkerEvent) -> None:
        match event:
            case LeaseRequested():
                self._decide(lambda now: self._lease_manager.request(event, now))
            case LeaseReleased():
                self._decide(lambda now: self._lease_manager.release(event, now))

    def _decide(self, act: Callable[[float], object]) -> None:
        leases, _ = with_shared_lock(self._lease_manager, self._peers, lambda: self._grant(act))
        for lease in leases:
            self._models[lease.request.holder].grant(lease.grant_command())
        self._set_timer()

    def _grant(self, act: Callable[[float], object]) -> list[Lease]:
        now = host_clock()
        act(now)
        return self._lease_manager.grants(now)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = host_clock()
        at = self._lease_manager.wake_at(now)
        loop = asyncio.get_running_loop()
        self._timer = (
            None if at is None else loop.call_later(max(0.0, at - now), self._decide, lambda _: None)
        )


class RawGemini:
    """A provider without an SDK."""

    def __init__(self, connections: GeminiConnections, names_limits: bool) -> None:
        self._connections = connections
        self._names_limits = names_limits

    async def complete(
        self,
        question: ModelRequest,
        access: LeasedKey,
        on_progress: OnProgress | None = None,
        on_piece: OnPiece | None = None,
    ) -> ModelResponse:
        response = await self._connections.send(access.secret, question.prompt)
        if response.status == 200:
            used = response.body["usageMetadata"]
            return ModelResponse(
                response.body["candidates"][0]["content"]["parts"][0]["text"],
                MODEL,
                Usage(1, used["promptTokenCount"], used["candidatesTokenCount"]),
            )
        raise self._error(response.status, response.body, response.headers)

    def _error(self, status: int, body: Any, headers: Any) -> Exception:
        refusal = read_refusal(status, body, headers, time.time())
        if refusal is None:
            return BadRequest(str(status))
        if refusal.kind is RefusalKind.RATE_LIMITED and not self._names_limits:
            refusal = replace(refusal, limits=())
        return CallRefused(refusal)


class _Callers:
    """Each caller works on one item after another, of a few calls each."""

    def __init__(self, job: Job, owner: Owner, provider: Callable[[], RawGemini]) -> None:
        self._job = job
        self._owner = owner
        self._provider = provider
        self._items: dict[int, _Item] = {}

    async def send(self, caller: int, call: int) -> None:
        item = self._item(caller)
        await item.model.complete(str(call), ModelRequest("draft", self._job.prompt(call)))
        item.calls += 1

    def _item(self, caller: int) -> "_Item":
        item = self._items.get(caller)
        if item is None or item.calls == CALLS_OF_AN_ITEM:
            number = item.number + 1 if item else 0
            item = self._items[caller] = self._begin(f"{caller}-{number}", number)
            if number:
                self._owner.drop_item(f"{caller}-{number - 1}")
        return item

    def _begin(self, name: str, number: int) -> "_Item":
        model = LeasedModel(name, ROLES, {"gemini": self._provider}, self._owner.handle)
        self._owner.add_item(name, model)
        return _Item(number, model)


@dataclass(slots=True)
class _Item:
    number: int
    model: LeasedModel
    calls: int = 0


def _credential(key: JobKey, job: Job) -> Credential:
    return Credential(
        name=key.name,
        provider="gemini",
        secret=Secret(key.secret),
        base_url=job.url,
        model=MODEL,
        bucket=key.bucket,
        concurrency=job.concurrency,
        rates=(*_rate(Dimension.REQUESTS, key.requests), *_rate(Dimension.TOKENS, key.tokens)),
    )


def _rate(dimension: Dimension, known: KnownLimit | None) -> list[tuple[Dimension, Rate]]:
    return [(dimension, Rate(known.amount, known.seconds))] if known else []
