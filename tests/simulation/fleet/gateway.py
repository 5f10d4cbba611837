"""The imagined gateway process around the product's lease broker, retry positions and pool, and providers that count every call."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from agentos.core.backoff import Jitter
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import Note, RunGone
from agentos.core.protocol.ports import PeerLog
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.gateway.dialects import DIALECTS
from agentos.gateway.forwarder import MAX_PROVIDER_ERRORS
from agentos.gateway.lease_broker import LeaseBroker, NoKey
from agentos.gateway.request_parser import ProxyRequest
from agentos.gateway.retry_positions import RetryPositions
from agentos.offline.rate_windows import Window, WindowKind, make_window

from .network import Machine, Service, Unreachable
from .virtual_time import VirtualProcess, current_process

TO_PROVIDER = (0.001, 0.03)  # seconds
USAGE = Usage(1, 100, 100)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of an item. `name` is the same each time that it is made."""

    item: str
    name: str
    body: bytes


@dataclass(slots=True)
class Providers:
    """Counts what every key is used for, in windows of the provider's own kind."""

    random: Random
    seconds: tuple[float, float]  # that an answer takes
    error_rate: float = 0.0
    windows: dict[str, Window] = field(default_factory=dict)
    concurrency: int = 1
    answered: Counter[str] = field(default_factory=Counter)
    over_limit: int = 0
    over_concurrency: int = 0
    errors: int = 0
    keeps_names: bool = True
    count: int = 0
    last_answer_at: float = 0.0
    held: Counter[str] = field(default_factory=Counter)

    def add_key(self, name: str, kind: WindowKind, limit: int, seconds: float) -> None:
        self.windows[name] = make_window(kind, limit, seconds)

    async def send(self, key: str, call: ModelCall) -> Refusal | None:
        await asyncio.sleep(self.random.uniform(*TO_PROVIDER))
        window, now = self.windows[key], asyncio.get_running_loop().time()
        if (wait := window.wait(now, 1)) > 0:
            self.over_limit += 1
            return Refusal(RefusalKind.RATE_LIMITED, "429", wait)
        if self.error_rate and self.random.random() < self.error_rate:
            self.errors += 1
            return Refusal(RefusalKind.PROVIDER_ERROR, "503")
        window.spend(now, 1)
        self.held[key] += 1
        self.over_concurrency += self.held[key] > self.concurrency
        held = self.held
        try:
            await asyncio.sleep(self.random.uniform(*self.seconds))
        finally:
            held[key] -= 1
        self.count += 1
        self.last_answer_at = asyncio.get_running_loop().time()
        if self.keeps_names:
            self.answered[f"{call.item}/{call.name}"] += 1
        return None


class NotesOnDisk(PeerLog):
    """What the gateway notes about its calls; the next one, after a kill -9, reads it all."""

    def __init__(self, notes: list[tuple[str, Note]], run: str) -> None:
        self._notes = notes
        self._run = run
        self._read = 0

    @contextlib.contextmanager
    def lock_and_read(self) -> Iterator[list[Note]]:
        new = self._notes[self._read :]
        self._read = len(self._notes)
        yield [_of_run(note, run) for run, note in new if run != self._run]

    def append(self, notes: list[Note]) -> bool:
        self._notes += [(self._run, note) for note in notes]
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        return [RunGone(run) for run in sorted(runs)]


def _of_run(note: Note, run: str) -> Note:
    from dataclasses import replace

    return replace(note, run=run) if hasattr(note, "run") else note


class Gateway(Service):
    """The address of the gateway: at most one process listens there."""

    def __init__(
        self,
        credentials: list[Credential],
        providers: Providers,
        jitter: Jitter,
        max_wait: float,
        peers: PeerLog | None = None,
    ) -> None:
        super().__init__("gateway")
        self.lives = 0
        self._credentials = credentials
        self._providers = providers
        self._jitter = jitter
        self._max_wait = max_wait
        self._peers = peers
        self._notes: list[tuple[str, Note]] = []
        self._process: GatewayProcess | None = None
        self.not_yet = 0
        self.start()

    def start(self) -> None:
        self.lives += 1
        peers = self._peers or NotesOnDisk(self._notes, f"gateway-{self.lives}")
        self._process = GatewayProcess(
            self._credentials, self._providers, self._jitter, self._max_wait, peers, self.lives
        )
        self.is_up = True

    def kill(self) -> None:
        self.is_up = False
        if self._process:
            self.not_yet += self._process.not_yet
            self._process.process.kill()
            self._process = None
            self._providers.held = Counter()  # its connections are closed

    @property
    def all_not_yet(self) -> int:
        return self.not_yet + (self._process.not_yet if self._process else 0)

    async def call(self, machine: Machine, call: ModelCall, model: str) -> Refusal | None:
        """A call as its client sees it: answered, refused, or broken (Unreachable)."""
        await machine.send(self)
        gateway = self._process
        if gateway is None:
            raise Unreachable("the gateway is gone")
        answer: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        task = gateway.process.spawn(gateway.handle(call, model, answer))
        gateway.clients[task] = answer
        task.add_done_callback(lambda done: gateway.clients.pop(done, None))
        hang_up = lambda: cast_none(task.cancel())  # noqa: E731 - the kernel closes a dead client's connection
        client = current_process()
        if client:
            client.on_death.append(hang_up)
        try:
            refusal = await answer
        except BaseException:
            task.cancel()
            raise
        finally:
            if client:
                client.on_death.remove(hang_up)
        await machine.send(self)
        return refusal


def cast_none(value: object) -> None:
    """For callbacks that return something."""


class GatewayProcess:
    """One life of the gateway: what it knows beyond its notes is lost with it."""

    def __init__(
        self,
        credentials: list[Credential],
        providers: Providers,
        jitter: Jitter,
        max_wait: float,
        peers: PeerLog,
        life: int,
    ) -> None:
        self.process = VirtualProcess(f"gateway-{life}")
        self.process.on_death.append(self._break_connections)
        self.clients: dict[asyncio.Task[None], asyncio.Future[Refusal | None]] = {}
        self.not_yet = 0
        self._clock = asyncio.get_running_loop().time
        self._max_wait = max_wait
        self._providers = providers
        self._positions = RetryPositions(self._clock)
        self._holders = itertools.count(1)
        self.manager = LeaseManager(Pool(credentials), jitter, Budget(PriceList()))
        self.broker = LeaseBroker(self.manager, peers, self._clock, lambda event: None)

    def _break_connections(self) -> None:
        for answer in list(self.clients.values()):
            if not answer.done():
                answer.set_exception(Unreachable("the gateway closed the connection"))

    async def handle(self, call: ModelCall, model: str, answer: "asyncio.Future[Refusal | None]") -> None:
        """As `RequestHandler` and `Forwarder` do, without HTTP."""
        request = ProxyRequest(DIALECTS["gemini"], ("token",), "POST", f"/{model}", "", (), call.body, model)
        holder, began, since = f"w {next(self._holders)}", self._clock(), self._positions.take(request)
        try:
            refusal = await self._forward(call, model, holder, began + self._max_wait, since)
        except NoKey as error:
            self.not_yet += 1
            if error.retry_after is not None:
                self._positions.keep(request, began if since is None else since, error.retry_after)
            refusal = Refusal(RefusalKind.NOT_YET, "no free key yet", max(1, round(error.retry_after or 0)))
        if not answer.done():
            answer.set_result(refusal)

    async def _forward(
        self, call: ModelCall, model: str, holder: str, deadline: float, since: float | None
    ) -> Refusal | None:
        provider_errors = 0
        wanted = events.LeaseRequested(holder, "call", ("gemini",), (model,), 100, 100, affinity="")
        while True:
            lease = await self.broker.acquire(wanted, deadline, lambda reason: None, since)
            refusal = await self._attempt(call, model, holder, lease)
            if refusal is None:
                return None
            provider_errors += refusal.kind is RefusalKind.PROVIDER_ERROR
            if provider_errors == MAX_PROVIDER_ERRORS:
                self.broker.forget(holder)
                return refusal

    async def _attempt(self, call: ModelCall, model: str, holder: str, lease: Lease) -> Refusal | None:
        is_released = False
        try:
            refusal = await self._providers.send(lease.credential.name, call)
            is_released = True
            usage = Usage() if refusal else USAGE
            seconds = self._clock() - lease.granted_at
            self.broker.release(events.LeaseReleased(holder, lease.id, seconds, usage, refusal, model))
            return refusal
        finally:
            if not is_released:
                self.broker.forget(holder)
