"""Entry points of a worker process: what the fork server prepares, and what each worker runs."""

import asyncio
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from agentos.config.settings import set_variables, wants_traceback
from agentos.core.planning.worker_task import WorkerTask
from agentos.core.protocol.codec import dumps, unpack
from agentos.core.protocol.commands import Command
from agentos.core.protocol.events import WorkerEvent, WorkerReported
from agentos.core.protocol.ports import Channel
from agentos.engines.channel import SocketChannel
from agentos.models.registry import tls_context
from agentos.models.warmup import warm_up_imported_sdks
from agentos.storage.checkpoints import prepare_database
from agentos.storage.file_items import FileItemStore
from agentos.storage.item_store import ItemStore
from agentos.worker.item_runner import exit_failure, run_item
from agentos.worker.kept_signatures import keep_signatures
from agentos.worker.raw_calls import RawCalls, WatchedChannel
from agentos.workflows.node_context import load_all_prompt_files

# Everything that workers would otherwise import themselves, each at its first use.
_MODULES = (
    "agentos.storage.sqlite_saver",
    "agentos.workflows.lld",
    "agentos.workflows.issue",
    "encodings.utf_8_sig",
    "langchain_core.tracers.context",
    "langchain_core.tracers.run_collector",
    "langchain_core.tracers.stdout",
    "langgraph.errors",
    "langgraph.graph",
    "langgraph.runtime",
    "tomllib",
    "yaml",
)


def warm_up() -> None:
    """Prepare the fork server: do once, before any fork, what every worker would otherwise repeat.

    Workers share the imported modules, certificates, prompt files and SDK caches as copy-on-write pages, and no
    longer depend on the files they were read from.
    """
    with ThreadPoolExecutor(1) as threads:
        # OpenSSL releases the GIL while it reads certificates, so this takes no time from the imports.
        certificates = threads.submit(tls_context)
        _import_tracers()
        for name in _MODULES:
            importlib.import_module(name)
        load_all_prompt_files()
        asyncio.run(prepare_database())
        certificates.result()
    with keep_signatures():
        warm_up_imported_sdks()


def main(connection: socket.socket) -> None:
    """Run one item: read the task from `connection`, report the outcome over it."""
    _leave_signals_to_the_coordinator()
    items, reports = list[str](), connection.dup()
    try:
        asyncio.run(_run_task(connection, items))
    except SystemExit as error:  # from a node: it ends the event loop at once
        if wants_traceback():
            traceback.print_exc()
        _report_exit(reports, items, error)


def _leave_signals_to_the_coordinator() -> None:
    """Handle the signals that a terminal sends to all processes by doing nothing.

    Not SIG_IGN: children would inherit it and could not be interrupted.
    """
    worker = os.getpid()

    def ignore(number: int, frame: object) -> None:
        if os.getpid() != worker:  # a fork of this process
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ignore)


def _report_exit(connection: socket.socket, items: list[str], error: SystemExit) -> None:
    sys.stdout.flush()
    if items:
        connection.settimeout(None)
        connection.sendall(dumps(WorkerReported(items[0], exit_failure(error))).encode() + b"\n")


async def _run_task(connection: socket.socket, items: list[str]) -> None:
    own_channel = await SocketChannel.open(connection)
    line = await own_channel.first_line()
    if not line:
        return
    task: WorkerTask = unpack(WorkerTask, json.loads(line))
    items.append(task.fleet.key if task.fleet else task.item.id)
    variables = {variable.name: variable.value.reveal() for variable in task.variables}
    set_variables({**variables, **({"AGENTOS_WORKFLOW_DB": task.database} if task.database else {})})
    raw_calls = RawCalls(_print)
    if task.gateway:
        raw_calls.start()
    watched = WatchedChannel(own_channel, raw_calls)
    channel = FleetChannel(watched, task.fleet.key) if task.fleet else watched
    outcome = await run_item(task, _item_store(task), channel, _print)
    sys.stdout.flush()
    channel.send(WorkerReported(task.item.id, outcome))
    await own_channel.drain()


def _item_store(task: WorkerTask) -> ItemStore:
    if task.fleet is None:
        return FileItemStore(task, _print)
    from agentos.storage.postgres.claimed_item import PostgresItemStore

    return PostgresItemStore(task, task.fleet)


class FleetChannel:
    """Sends events under the item's name on this machine, because two projects of a fleet may both have an LLD-42."""

    def __init__(self, channel: Channel, key: str) -> None:
        self._channel = channel
        self._key = key

    def send(self, event: WorkerEvent) -> None:
        self._channel.send(replace(event, item=self._key))

    async def next(self) -> Command | None:
        return await self._channel.next()


def _print(text: str) -> None:
    """In a single write, because nodes in several threads may print at the same time."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _import_tracers() -> None:
    """Import LangChain's tracers without building their pydantic models, since nothing is traced.

    Pydantic then builds a model on first use. `defer_build` can be set for all of them only on the base class.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        importlib.import_module("langchain_core.tracers.langchain")
    finally:
        del BaseModel.model_config["defer_build"]
