"""An item's session with its coordinator and models: leased calls, cached answers, stop requests, waits for the store."""

import asyncio
import contextlib
import json
import os

from agentos.core.errors import ItemError
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import CodecError, pack, unpack
from agentos.core.protocol.commands import GrantLease, StopWorker
from agentos.core.protocol.events import DiskFreed, DiskFull, WorkerEvent
from agentos.core.protocol.ports import Channel, ModelRequest, ModelResponse
from agentos.models.leased import LeasedModel
from agentos.models.registry import PROVIDERS
from agentos.storage.item_store import Checkpoint, ItemStore

STORE_POLL_INTERVAL = 0.5  # seconds


class ModelSession:
    """Everything that item runner and graph runner share while an item is at work.

    `ask` calls a model with a leased key and keeps the answer in the checkpoint before returning it, so that no
    answer is paid for twice. `listen` must run beside it: it delivers the leases, sets `stopping` when the
    coordinator asks the worker to stop, and ends the process when the coordinator is gone.
    """

    def __init__(self, task: WorkerTask, channel: Channel, store: ItemStore) -> None:
        self.stopping = asyncio.Event()
        self._item = task.item.id
        self._channel = channel
        timeouts = {timeout.model: timeout.seconds for timeout in task.call_timeouts}
        self._model = LeasedModel(self._item, task.models, PROVIDERS, channel.send, timeouts)
        self._store = store

    def send(self, event: WorkerEvent) -> None:
        self._channel.send(event)

    async def ask(self, checkpoint: Checkpoint, call: str, request: ModelRequest) -> ModelResponse:
        """The cached answer to this call, or a new one; it is on disk when this returns."""
        note = f"answer {call}"
        if (cached := await checkpoint.noted(note)) is not None:
            if response := _readable(cached):
                return response
            await self._drop(checkpoint, call)
        if not self._model.calls_done:
            self._model.calls_done = await checkpoint.count_answers()
        response = await self._model.complete(call, request)
        text = json.dumps(pack(response))
        while True:
            try:
                await checkpoint.note(note, text)
                return response
            except Exception as error:
                # An answer that was paid for waits in memory while the disk is full.
                if not self._store.is_unavailable(error) or not await self.wait_for_store():
                    raise

    async def forget(self, checkpoint: Checkpoint, *calls: str) -> None:
        """Drop the answers to these calls, so that they are asked again."""
        for call in calls:
            await checkpoint.forget(f"answer {call}")

    async def _drop(self, checkpoint: Checkpoint, call: str) -> None:
        """Allow one repeat of a call whose stored answer is unusable; fail the second time, to avoid paying endlessly."""
        if await checkpoint.noted(f"dropped {call}") is not None:
            raise ItemError(
                f"the stored answer to {call} is unusable for the second time",
                ("start over with --fresh, or choose another model",),
            )
        await checkpoint.note(f"dropped {call}", "")

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
                    # The coordinator is gone: no worker may outlive it, and everything finished is on disk.
                    os._exit(1)
                case _:
                    pass

    async def wait_for_store(self) -> bool:
        """Wait until the store takes writes again, as when there is space on the disk; False if stopped meanwhile."""
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


def _readable(kept: str) -> ModelResponse | None:
    """The stored answer; None if it is damaged or contains text that cannot be encoded as UTF-8."""
    try:
        response: ModelResponse = unpack(ModelResponse, json.loads(kept))
        f"{response.text}{response.model}".encode()
    except (CodecError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return response
