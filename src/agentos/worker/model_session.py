"""An item's session with its coordinator and models: leased calls, cached answers, stop requests, waits for the store."""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from agentos.core.errors import ItemError
from agentos.core.planning.worker_task import FleetTask, WorkerTask
from agentos.core.protocol.codec import CodecError, pack, unpack
from agentos.core.protocol.commands import GrantLease, StopWorker
from agentos.core.protocol.events import DiskFreed, DiskFull, WorkerEvent
from agentos.core.protocol.ports import Channel, ModelRequest, ModelResponse, OnPiece
from agentos.core.protocol.trace_context import TRACEPARENT, SpanContext, call_span
from agentos.models.leased import LeasedModel
from agentos.models.refusal_base import BUDGET_HEADER
from agentos.models.registry import PROVIDERS, Providers
from agentos.storage.item_store import Checkpoint, ItemStore
from agentos.workflows.current_item import Correct, current_task, is_running_on

STORE_POLL_INTERVAL = 0.5  # seconds
KEEP_TRIES = 4
"""How often a stopped item tries to store an answer; its node is cancelled 2 s after the stop."""


class ModelSession:
    """Everything that item runner and graph runner share while an item is running.

    `ask` and `complete` call a model with a leased key and keep the answer in the checkpoint before returning it, so
    that no answer is paid for twice. `listen` must run alongside: it delivers the leases, sets `stopping` when the
    coordinator asks the worker to stop, and ends the process when the coordinator is gone.
    """

    def __init__(
        self,
        task: WorkerTask,
        channel: Channel,
        store: ItemStore,
        providers: Providers = PROVIDERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._item = task.item.id
        self._run = task.run
        self._channel = channel
        timeouts = {timeout.model: timeout.seconds for timeout in task.call_timeouts}
        headers = partial(_fleet_headers, task.fleet)
        self._model = LeasedModel(self._item, task.models, providers, channel.send, timeouts, clock, headers)
        self._store = store
        self._pending: set[str] = set()
        self._asked: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()
        self._used: dict[str, set[str]] = {}
        """The answers that each task of the graph got in this process, and the tasks that called a model."""
        self._paid: set[str] = set()

    def send(self, event: WorkerEvent) -> None:
        self._channel.send(event)

    def restart_graph(self) -> None:
        """Prepare for running the graph again from its checkpoint: repeated calls get the stored answers."""
        self._counts.clear()

    async def ask(self, checkpoint: Checkpoint, name: str, request: ModelRequest) -> ModelResponse:
        """The answer to the call with this name and prompt in this task of the graph; on disk when this returns."""
        if not is_running_on(self._loop):
            raise ItemError(
                f"context.ask({name!r}) was called in an event loop of its own, such as asyncio.run makes: "
                "write context.ask_sync(...) in a node that is not async"
            )
        call = f"{name} {current_task()}"
        key = f"{call} {_digest(request)}"
        if key in self._pending:
            raise ItemError(
                f"two calls named {name!r} with the same prompt run at the same time in one node: "
                "give each a name of its own"
            )
        self._asked.setdefault(call, set()).add(key)
        return await self._kept(checkpoint, _Call(current_task(), key, name), request)

    async def complete(
        self,
        checkpoint: Checkpoint,
        task: str,
        request: ModelRequest,
        on_piece: OnPiece | None = None,
        correct: Correct | None = None,
    ) -> ModelResponse:
        """The answer to the next call with this prompt in this task of the graph; on disk when this returns.

        A task that runs again after a crash makes the same calls, so it gets the same answers in the same order. If
        `correct` also rejects the second answer, that is returned but not kept, so the next attempt asks again.
        """
        if not task:
            # In a thread that a node started itself, the newest checkpoint identifies the step.
            newest = await checkpoint.saver.aget_tuple({"configurable": {"thread_id": self._store.thread_id}})
            task = newest.checkpoint["id"] if newest else ""
        counted = f"{task} {_digest(request)}"
        self._counts[counted] += 1
        calls = [_Call(task, f"{counted} {self._counts[counted]}", request.role)]
        response = await self._kept(checkpoint, calls[0], request, on_piece)
        better = correct(response) if correct else None
        if better and on_piece is None:
            calls.append(replace(calls[0], key=f"{calls[0].key} again"))
            response = await self._kept(checkpoint, calls[1], better)
            better = correct(response) if correct else None
        if better:
            for call in calls:
                await checkpoint.forget(f"answer {call.key}")
        return response

    async def _kept(
        self,
        checkpoint: Checkpoint,
        call: "_Call",
        request: ModelRequest,
        on_piece: OnPiece | None = None,
    ) -> ModelResponse:
        self._pending.add(call.key)
        self._used.setdefault(call.task, set()).add(call.key)
        try:
            note = f"answer {call.key}"
            if (cached := await checkpoint.noted(note)) is not None:
                if response := _readable(cached):
                    return response
                await self._drop(checkpoint, call.key, call.name)
            if not self._model.calls_done:
                self._model.calls_done = await checkpoint.count_answers()
            self._paid.add(call.task)
            response = await self._model.complete(call.name, request, on_piece)
            paid = response.paid and replace(response.paid, run=self._run)
            await self._keep(checkpoint, note, json.dumps(pack(replace(response, paid=paid))))
            return response
        finally:
            self._pending.discard(call.key)

    async def _keep(self, checkpoint: Checkpoint, note: str, text: str) -> None:
        """Store an answer. While the disk is full, a paid answer waits in memory, even for some time after a stop."""
        tries_left = KEEP_TRIES
        while True:
            try:
                await checkpoint.note(note, text)
                return
            except Exception as error:
                if not self._store.is_unavailable(error):
                    raise
                if not await self.wait_for_store():
                    tries_left -= 1
                    if not tries_left:
                        raise
                    await asyncio.sleep(STORE_POLL_INTERVAL)

    async def forget(self, checkpoint: Checkpoint, *names: str) -> None:
        """Drop the answers to the calls with these names in this task, so that the model is asked again."""
        for name in names:
            for key in self._asked.pop(f"{name} {current_task()}", ()):
                await checkpoint.forget(f"answer {key}")

    async def drop_useless(self, checkpoint: Checkpoint, ended: set[str], *, at_once: bool) -> bool:
        """Drop the answers of unfinished tasks, which failed on them; return whether there were any.

        Unless `at_once`, the answers of a task that called a model itself are kept: they will be useful if its code was
        at fault and is corrected. A task that had all its answers from an earlier attempt has now failed on them twice.
        """
        failed = {task for task in self._used if task not in ended and (at_once or task not in self._paid)}
        keys = [key for task in failed for key in self._used.pop(task)]
        for key in keys:
            await checkpoint.forget(f"answer {key}")
        return bool(keys)

    async def _drop(self, checkpoint: Checkpoint, key: str, name: str) -> None:
        """Repeat a call whose stored answer is unusable once; fail the second time, to avoid paying endlessly."""
        if await checkpoint.noted(f"dropped {key}") is not None:
            raise ItemError(
                f"the stored answer to {name} is unusable for the second time",
                ("start over with --fresh, or choose another model",),
            )
        await checkpoint.note(f"dropped {key}", "")

    def stop_waiting(self) -> None:
        """Abandon the calls that wait for a lease."""
        self._model.stop_waiting()

    async def listen(self) -> None:
        """Handle the coordinator's commands until cancelled."""
        while True:
            match await self._channel.next():
                case GrantLease() as grant:
                    self._model.grant(grant)
                case StopWorker():
                    self.stopping.set()
                case None:
                    # The coordinator is gone. No worker may outlive it, and everything finished is on disk.
                    os._exit(1)
                case _:
                    pass

    async def wait_for_store(self) -> bool:
        """Wait until the store takes writes again, for example after space was freed; False if stopped before that."""
        place = await self._store.unavailable()
        self.send(DiskFull(self._item, place or self._store.place))
        # At least one pause: the failed write may need more space than the probe does.
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), STORE_POLL_INTERVAL)
            if not await self._store.unavailable():
                self.send(DiskFreed(self._item))
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Call:
    """A model call of a task of the graph; its answer is stored under `key`."""

    task: str
    key: str
    name: str


def _digest(request: ModelRequest) -> str:
    return hashlib.sha256(json.dumps(pack(request), sort_keys=True).encode()).hexdigest()[:32]


def _readable(kept: str) -> ModelResponse | None:
    """The stored answer; None if it is damaged or contains text that cannot be encoded as UTF-8."""
    try:
        response: ModelResponse = unpack(ModelResponse, json.loads(kept))
        f"{response.text}{response.model}{response.tool_calls}".encode()
    except (CodecError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return response


def _fleet_headers(fleet: FleetTask | None, lease: str) -> tuple[tuple[str, str], ...]:
    """What a fleet worker sends to the gateway with a call: the submission's budget, which the gateway enforces across
    all workers, and the span of the call."""
    if fleet is None:
        return ()
    budget = () if fleet.budget is None else ((BUDGET_HEADER, f"{fleet.account}={fleet.budget!r}"),)
    if not fleet.trace:
        return budget
    return (*budget, (TRACEPARENT, call_span(SpanContext(fleet.trace), fleet.claim, lease).header))
