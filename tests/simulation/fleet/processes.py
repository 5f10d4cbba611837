"""The imagined processes of a machine: the product's item runner around an imagined graph and model client."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from agentos.core.errors import CallRefused
from agentos.core.planning.worker_task import FleetTask, WorkerTask
from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, KillWorker, StartWorker
from agentos.core.protocol.ports import Channel, LeasedKey, ModelRequest, ModelResponse, OnPiece, OnProgress
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.fleet.active_items import ActiveItem, ActiveItems
from agentos.models.client_base import MAX_BROKEN_CONNECTIONS
from agentos.storage.item_store import ItemStore
from agentos.worker.graph_runner import CANCEL_GRACE
from agentos.worker.item_runner import RunnerParts, run_item
from agentos.worker.main import FleetChannel
from agentos.worker.model_session import ModelSession

from .gateway import USAGE, Gateway, ModelCall
from .network import Machine, Unreachable
from .stores import SimulatedCheckpoint
from .surroundings import ROLES, Surroundings, Work
from .virtual_time import VirtualProcess

_WORKFLOW = cast(Any, SimpleNamespace(options=SimpleNamespace(retry_on=None), tidy=lambda *_: None))


class SimulatedEngine:
    """Starts imagined processes, and carries messages between them and the event loop."""

    def __init__(self, machine: Machine, around: Surroundings, active_items: ActiveItems) -> None:
        self._machine = machine
        self._around = around
        self._active_items = active_items
        self._events: list[Any] = []
        self._wakeup: asyncio.Future[None] | None = None
        self._is_woken = False
        self._processes: dict[str, ItemProcess] = {}

    async def arrive(self, seconds: float | None) -> None:
        """Waits until there is something to receive, `wake` is called or the time has passed."""
        if not self._events and not self._is_woken and (seconds is None or seconds > 0):
            loop = asyncio.get_running_loop()
            self._wakeup = loop.create_future()
            timer = None if seconds is None else loop.call_later(seconds, self.wake)
            await self._wakeup
            self._wakeup = None
            if timer:
                timer.cancel()
        self._is_woken = False

    def receive(self, timeout: float | None) -> list[Any]:
        received, self._events = self._events, []
        return received

    def wake(self) -> None:
        self._is_woken = True
        if self._wakeup and not self._wakeup.done():
            self._wakeup.set_result(None)

    def watch(self, descriptor: int) -> None:
        pass

    def close(self) -> None:
        pass

    def emit(self, event: Any) -> None:
        self._events.append(event)
        self.wake()

    def execute(self, command: Command) -> None:
        match command:
            case StartWorker():
                active_item = self._active_items.get(command.item)
                assert active_item
                self._processes[command.item] = ItemProcess(self._machine, self._around, self, active_item)
            case KillWorker():
                self._processes.pop(command.item).kill("SIGKILL")
            case _:
                if process := self._processes.get(command.item):
                    process.commands.put_nowait(command)

    def ended(self, key: str) -> None:
        self._processes.pop(key, None)


class ItemProcess:
    """The process of one item: the product's item runner with an imagined graph and an imagined model client."""

    def __init__(
        self, machine: Machine, around: Surroundings, engine: SimulatedEngine, active_item: ActiveItem
    ) -> None:
        self._machine, self._around, self._engine, self._key = machine, around, engine, active_item.key
        self.commands: asyncio.Queue[Command] = asyncio.Queue()
        turn, key = active_item.turn, active_item.key
        self.process = VirtualProcess(key, machine.process)
        self.item: str = turn.item
        access = FleetTask(
            Secret(""), active_item.claim.thread_id, active_item.claim.claim, machine.name, key
        )
        task = active_item.loaded.task
        self._task = WorkerTask("S1", 1, "", "lld", task.item, "", 1, ROLES, fresh=task.fresh, fleet=access)
        self._store = around.store(around.postgres, machine, access)
        self.process.on_death.append(self._count_loss)
        self.process.spawn(self._run(active_item))
        if around.work.happens(self.item, around.work.crash):
            around.work.crashes += 1
            seconds = around.work.random.uniform(0.0, 10.0)
            machine.process.call_later(seconds, self.kill, "SIGSEGV")

    def kill(self, cause: str) -> None:
        if self.process.is_alive:
            self.process.kill()
            self._engine.ended(self._key)
            exited = events.WorkerExited(self._key, cause, clean=False)
            self._machine.process.call_later(0.01, self._engine.emit, exited)

    def _count_loss(self) -> None:
        self._around.work.losses[self.item] += 1

    async def _run(self, active_item: ActiveItem) -> None:
        work = self._around.work
        await asyncio.sleep(work.random.uniform(*work.start_seconds))
        self._engine.emit(events.WorkerStarted(self._key, 1))
        channel = FleetChannel(_ProcessChannel(self), self._key)
        store = cast(ItemStore, self._store)
        outcome = await run_item(self._task, store, channel, lambda text: None, self._parts)
        postgres, machine = self._around.postgres, self._machine
        is_away = not postgres.is_up or machine.is_cut_from(postgres.name)
        is_outranked = self._store.row.held.claim != active_item.claim.claim
        if is_outranked or (outcome.ending is Ending.INTERRUPTED and is_away):
            self._count_loss()  # or told to stop while an answer could not be kept
        self._engine.emit(events.WorkerReported(self._key, outcome))
        await asyncio.sleep(0.01)
        self.process.on_death.clear()
        self.process.exit()
        self._engine.ended(self._key)
        self._engine.emit(events.WorkerExited(self._key, "exit status 0", clean=True))

    def emit(self, event: Any) -> None:
        self._engine.emit(event)

    def _parts(self, task: WorkerTask, store: ItemStore, channel: Channel, echo: object) -> RunnerParts:
        around = self._around
        client = SimulatedModelClient(around.gateway, self._machine, self.item, around.work.losses)
        clock = asyncio.get_running_loop().time
        session = ModelSession(task, channel, store, {"gemini": lambda: client}, clock)
        return RunnerParts(_WORKFLOW, session, SimulatedGraph(around.work, self.item, session))


@dataclass(frozen=True, slots=True)
class _ProcessChannel:
    process: ItemProcess

    def send(self, event: Any) -> None:
        self.process.emit(event)

    async def next(self) -> Command | None:
        return await self.process.commands.get()


@dataclass(frozen=True, slots=True)
class SimulatedModelClient:
    """A vendor's client. An answer that a broken connection keeps from arriving counts as lost."""

    gateway: Gateway
    machine: Machine
    item: str
    losses: Counter[str]

    async def complete(
        self,
        request: ModelRequest,
        key: LeasedKey,
        on_progress: OnProgress | None = None,
        on_piece: OnPiece | None = None,
    ) -> ModelResponse:
        call = ModelCall(self.item, request.prompt, f"{self.item} {request.prompt}".encode())
        try:
            refusal = await self.gateway.call(self.machine, call, key.model)
        except Unreachable as error:
            self.losses[self.item] += 1
            refused = Refusal(RefusalKind.PROVIDER_ERROR, str(error))
            raise CallRefused(refused, blame_after=MAX_BROKEN_CONNECTIONS) from None
        if refusal is not None:
            raise CallRefused(refusal)
        return ModelResponse(f"answer to {request.prompt}", key.model, USAGE)


@dataclass(frozen=True, slots=True)
class SimulatedGraph:
    """Stands in for LangGraph: node after node, each with a model call and a document, committed one by one."""

    work: Work
    item: str
    session: ModelSession

    async def run(self, checkpoint: Any) -> Outcome:
        running = asyncio.ensure_future(self._nodes(checkpoint))
        stopper = asyncio.ensure_future(self._stop_when_asked(running))
        try:
            return await running
        except asyncio.CancelledError:
            if not self.session.stopping.is_set():
                raise
            self.work.losses[self.item] += 1  # its call, or the answer that was just being kept
            return Outcome(Ending.INTERRUPTED)
        finally:
            stopper.cancel()

    async def _stop_when_asked(self, running: "asyncio.Future[Outcome]") -> None:
        await self.session.stopping.wait()
        self.session.stop_waiting()
        await asyncio.sleep(CANCEL_GRACE)
        running.cancel()

    async def _nodes(self, checkpoint: SimulatedCheckpoint) -> Outcome:
        work, random = self.work, self.work.random
        for node in range(await checkpoint.position(), work.nodes):
            if self.session.stopping.is_set():
                return Outcome(Ending.INTERRUPTED)
            if node == work.gate and await checkpoint.noted("decision") is None:
                return Outcome(Ending.PARKED)
            self.session.send(events.NodeStarted(self.item, f"N{node}", 1))
            await asyncio.sleep(random.uniform(*work.node_seconds))
            if work.happens(self.item, work.failure):
                raise OSError("a fault of the item itself")
            request = ModelRequest("drafter", f"node {node}")
            if node % 2:
                answer = await self.session.complete(checkpoint, f"task-{node}", request)
            else:
                answer = await self.session.ask(checkpoint, "draft", request)
            await checkpoint.commit(node + 1, answer.text.encode())
            self.session.send(events.NodeFinished(self.item, f"N{node}", 1.0))
        return Outcome(Ending.FINISHED, Verdict.APPROVED, 1)
