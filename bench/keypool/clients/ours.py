"""Ours: the product's leasing, pool and models, with an event loop in the coordinator's place."""

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
from agentos.core.protocol.ports import LeasedKey, ModelRequest, ModelResponse, PeerLog
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.quota.shared_lock import with_shared_lock
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import RefusalKind
from agentos.core.text.secrets import Secret
from agentos.models.gemini.refusals import read_refusal
from agentos.models.leased import LeasedModel
from agentos.storage.clock import host_clock
from agentos.storage.peer_log import FilePeerLog, NoPeers
from bench.keypool.call import Wire
from bench.keypool.drive import Ask
from bench.keypool.job import Job, JobKey, Told

MODEL = "offline-rules-1"
ROLES = (RoleModel("draft", ("gemini",), (MODEL,)),)
CALLS_OF_AN_ITEM = 4


@contextlib.asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Ask]:
    wire = Wire(job.url)
    with contextlib.ExitStack() as stack:
        peers: PeerLog = NoPeers()
        if job.folder:
            peers = stack.enter_context(
                contextlib.closing(FilePeerLog(Path(job.folder), f"process-{job.process}"))
            )
        owner = Owner([_credential(key, job) for key in job.keys], peers)
        yield _Callers(job, owner, lambda: RawGemini(wire, job.names_limits)).ask
        await wire.close()


class Owner:
    """The one task that touches the pool; takes turns with other processes as the coordinator does."""

    def __init__(self, credentials: list[Credential], peers: PeerLog) -> None:
        self._leasing = LeaseManager(Pool(credentials), random.random, Budget(PriceList()))
        self._neighbours = peers
        self._models: dict[str, LeasedModel] = {}
        self._alarm: asyncio.TimerHandle | None = None

    def enter(self, item: str, model: LeasedModel) -> None:
        self._models[item] = model

    def leave(self, item: str) -> None:
        del self._models[item]
        self._leasing.drop_holder(item)

    def hear(self, event: WorkerEvent) -> None:
        match event:
            case LeaseRequested():
                self._decide(lambda now: self._leasing.request(event, now))
            case LeaseReleased():
                self._decide(lambda now: self._leasing.release(event, now))

    def _decide(self, act: Callable[[float], object]) -> None:
        leases, _ = with_shared_lock(self._leasing, self._neighbours, lambda: self._grant(act))
        for lease in leases:
            self._models[lease.request.holder].grant(lease.grant_command())
        self._arm()

    def _grant(self, act: Callable[[float], object]) -> list[Lease]:
        now = host_clock()
        act(now)
        return self._leasing.grants(now)

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        now = host_clock()
        at = self._leasing.wake_at(now)
        loop = asyncio.get_running_loop()
        self._alarm = (
            None if at is None else loop.call_later(max(0.0, at - now), self._decide, lambda _: None)
        )


class RawGemini:
    """A provider without an SDK."""

    def __init__(self, wire: Wire, names_limits: bool) -> None:
        self._wire = wire
        self._names_limits = names_limits

    async def complete(self, question: ModelRequest, access: LeasedKey) -> ModelResponse:
        heard = await self._wire.ask(access.secret, question.prompt)
        if heard.status == 200:
            used = heard.body["usageMetadata"]
            return ModelResponse(
                heard.body["candidates"][0]["content"]["parts"][0]["text"],
                MODEL,
                Usage(1, used["promptTokenCount"], used["candidatesTokenCount"]),
            )
        raise self._error(heard.status, heard.body, heard.headers)

    def _error(self, status: int, body: Any, headers: Any) -> Exception:
        refusal = read_refusal(status, body, headers, time.time())
        if refusal is None:
            return BadRequest(str(status))
        if refusal.kind is RefusalKind.RATE_LIMITED and not self._names_limits:
            refusal = replace(refusal, limits=())
        return CallRefused(refusal)


class _Callers:
    """Each caller carries item after item, of a few calls each."""

    def __init__(self, job: Job, owner: Owner, provider: Callable[[], RawGemini]) -> None:
        self._job = job
        self._owner = owner
        self._provider = provider
        self._carried: dict[int, _Item] = {}

    async def ask(self, caller: int, call: int) -> None:
        item = self._item(caller)
        await item.model.complete(str(call), ModelRequest("draft", self._job.prompt(call)))
        item.calls += 1

    def _item(self, caller: int) -> "_Item":
        item = self._carried.get(caller)
        if item is None or item.calls == CALLS_OF_AN_ITEM:
            number = item.number + 1 if item else 0
            item = self._carried[caller] = self._begin(f"{caller}-{number}", number)
            if number:
                self._owner.leave(f"{caller}-{number - 1}")
        return item

    def _begin(self, name: str, number: int) -> "_Item":
        model = LeasedModel(name, ROLES, {"gemini": self._provider}, self._owner.hear)
        self._owner.enter(name, model)
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
        concurrency=job.concurrency,
        rates=(*_rate(Dimension.REQUESTS, key.requests), *_rate(Dimension.TOKENS, key.tokens)),
    )


def _rate(dimension: Dimension, told: Told | None) -> list[tuple[Dimension, Rate]]:
    return [(dimension, Rate(told.amount, told.seconds))] if told else []
