"""Warm-up items: the idle fork server runs made-up items, so that workers start with specialized code and filled caches.

Python compiles and specializes code while it runs, and libraries fill caches. A worker runs one item and ends, so it
would do all of that again, each time on pages that it has to copy first. A warm-up item leaves nothing behind: its
documents and checkpoint are in memory, the answers are canned, no connection is opened and no file is written.
"""

import asyncio
import contextlib
import functools
import gc
import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path

from agentos.core.planning.items import Item, ItemStatus
from agentos.core.planning.worker_task import RoleModel, WorkerTask
from agentos.core.protocol.codec import dumps, loads, pack, unpack
from agentos.core.protocol.commands import Command, GrantLease
from agentos.core.protocol.events import LeaseRequested, WorkerEvent
from agentos.core.protocol.ports import Documents
from agentos.core.protocol.results import Ending, Outcome, Verdict
from agentos.core.text.secrets import Secret
from agentos.models.warmup import BASE_URL, canned_provider, canned_streams, http_library, imported_vendors
from agentos.storage.checkpoints import SqliteCheckpoint, open_in_memory
from agentos.storage.item_store import Claim, IsRedo, Tidy
from agentos.worker.item_runner import load_parts, run_item
from agentos.worker.kept_signatures import keep_signatures

# What a design of a project with code and a resumed item need in addition. A worker that is forked before these are
# imported imports them itself.
_MODULES = ("agentos.codebase.project_code", "agentos.worker.uncounted_calls")
WARM_UP_ITEMS = 4
MAX_LEASES = 4  # per item, which makes two calls
TITLE = "Warm-up"
TEXT = f"# {TITLE}\n\nReaders ask for it.\n\n## Requirements\n\n- It must work.\n\n## Acceptance criteria\n\n- It works.\n"
# Any text will do as a draft; as a review, this one approves.
ANSWER = '{"verdict": "APPROVED", "rationale": "It works.", "issues": []}'
PROJECT = Path(__file__).parent / "no-such-project"


def run_warm_up_items() -> Iterator[None]:
    """Import what only some items need, then run one warm-up item per step.

    Stop after one that fails: workers are then merely as slow as without.
    """
    for name in _MODULES:
        importlib.import_module(name)
    _freeze()
    yield
    for vendor in imported_vendors()[:1]:
        library = http_library(vendor)
        for number in range(WARM_UP_ITEMS):
            with keep_signatures() if number == 0 else contextlib.nullcontext():
                if not library or not run_warm_up_item(vendor, library):
                    return
            _freeze()
            yield


def _freeze() -> None:
    """As before the first fork: workers must neither scan nor collect what is left over."""
    gc.collect()
    gc.freeze()


def run_warm_up_item(vendor: str, library: str) -> bool:
    """Run a made-up item with this vendor's SDK; return whether it finished."""
    try:
        outcome = asyncio.run(_run(vendor, library))
    except Exception:
        return False
    return outcome.ending is Ending.FINISHED


async def _run(vendor: str, library: str) -> Outcome:
    provider = canned_provider(vendor, library, canned_streams(ANSWER)[vendor])
    roles = ("drafter", "reviewer")
    task = WorkerTask(
        run="warm-up",
        coordinator=os.getpid(),
        project=str(PROJECT),
        workflow="lld",
        origin="agentos.workflows.lld:LldWorkflow",
        item=Item("LLD-1", "lld", 1, TITLE, "issues/1.md"),
        database="",
        max_iterations=1,
        models=tuple(RoleModel(role, (vendor,), ("warm-up",)) for role in roles),
        text=TEXT,
    )
    # Decoded, as it arrives from the coordinator.
    task = unpack(WorkerTask, json.loads(json.dumps(pack(task))))
    load = functools.partial(load_parts, providers={vendor: lambda: provider})
    return await run_item(task, _MemoryStore(), _GrantingChannel(vendor), lambda text: None, load)


class _GrantingChannel:
    """Grants every lease, up to `MAX_LEASES`. Encodes and decodes messages, as a real channel does."""

    def __init__(self, vendor: str) -> None:
        self._vendor = vendor
        self._leases = 0
        self._granted: asyncio.Queue[str] = asyncio.Queue()

    def send(self, event: WorkerEvent) -> None:
        dumps(event)
        if isinstance(event, LeaseRequested):
            self._leases += 1
            if self._leases > MAX_LEASES:
                # The SDK does not accept the canned answers. A refused call would be repeated forever.
                raise RuntimeError("a call of a warm-up item was refused too often")
            grant = GrantLease(
                item=event.item,
                call=event.call,
                lease=event.call,
                key="warm-up",
                provider=self._vendor,
                secret=Secret("no-key"),
                base_url=BASE_URL,
                model=event.models[0],
            )
            self._granted.put_nowait(dumps(grant))

    async def next(self) -> Command | None:
        command: Command = loads(await self._granted.get())
        return command


class _MemoryStore:
    """The store of an item that nobody else works on."""

    def __init__(self) -> None:
        self.documents: Documents = _MemoryDocuments()
        self.thread_id = "LLD-1"
        self.place = str(PROJECT)

    async def claim(self) -> Claim | Outcome:
        return Claim()

    async def release(self) -> None: ...

    async def earlier_verdict(self, status: Callable[[], ItemStatus], is_redo: IsRedo) -> Verdict | None:
        return None

    async def check(self) -> str:
        return ""

    def open(self) -> AbstractAsyncContextManager[SqliteCheckpoint]:
        return open_in_memory()

    def kept_answers(self) -> list[str]:
        return []

    async def clean_up(self, tidy: Tidy) -> None: ...

    async def finish(self, tidy: Tidy, outcome: Outcome) -> None: ...

    def is_unavailable(self, error: BaseException) -> bool:
        return False

    def is_lost(self, error: BaseException) -> bool:
        return False

    async def unavailable(self) -> str:
        return ""


class _MemoryDocuments:
    """Documents in memory."""

    root = PROJECT

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        self._files[name] = content

    def read(self, name: str) -> bytes:
        return self._files[name]

    def exists(self, name: str) -> bool:
        return name in self._files

    def move(self, name: str, target: str) -> None:
        self._files[target] = self._files.pop(name)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def names(self, folder: str) -> list[str]:
        return [name for name in self._files if name.startswith(f"{folder}/")]

    def numbering(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()
