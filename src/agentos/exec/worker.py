"""Inside a worker process of `agentos exec`: runs one program for one item and marks the item as done."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from agentos.config.settings import environment
from agentos.core.planning.exec_command import ExecTask, record_name
from agentos.core.protocol.codec import unpack
from agentos.core.protocol.commands import StopWorker
from agentos.core.protocol.events import ProgramEnded, WorkerReported, WorkspaceSaved
from agentos.core.protocol.ports import Channel
from agentos.core.protocol.results import Ending, Outcome, failed, failed_transient
from agentos.core.text.values import exit_cause, too_many_processes
from agentos.engines.channel import SocketChannel
from agentos.exec.done_markers import DoneMarkers, content_digest
from agentos.exec.sandbox import Sandbox, open_sandbox
from agentos.exec.workspace import Workspace, WorkspaceError, WorkspaceState, claim_name, repositories_text
from agentos.exec.workspaces import open_workspaces
from agentos.platform_support import platform
from agentos.storage.locks import Holder, ItemLocks, LockFile, finished_outcome

SIGNAL_STATUS = 128  # added to the signal that ended a program, as in a shell; bubblewrap reports it so
STOP_GRACE = 2.0  # seconds between SIGTERM and SIGKILL
PARENT_DEATH_SIGNAL = signal.SIGUSR1


def main(connection: socket.socket) -> None:
    """Run one item: the program joins this worker's process group and is killed with it."""
    # Handled, not ignored: the program would inherit an ignored signal.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(PARENT_DEATH_SIGNAL, lambda *_: _kill_group())
    platform().signal_on_parent_death(os.getppid(), PARENT_DEATH_SIGNAL)
    asyncio.run(_run_task(connection))


async def _run_task(connection: socket.socket) -> None:
    channel = await SocketChannel.open(connection)
    line = await channel.first_line()
    if not line:
        return
    task: ExecTask = unpack(ExecTask, json.loads(line))
    outcome = await run_program(task, channel)
    channel.send(WorkerReported(task.item.id, outcome))
    await channel.drain()


async def run_program(task: ExecTask, channel: Channel) -> Outcome:
    """Lock the item and run its program unless it is done already."""
    records = Path(task.records_dir)
    locks, markers = ItemLocks.inside(records), DoneMarkers(records)
    name = record_name(task.item.source)
    previous = locks.holder(name)
    lock = locks.acquire(name, Holder(task.coordinator, task.run))
    if lock is None:
        return Outcome(Ending.HELD_BY_OTHER_RUN, error="another run is working on it")
    try:
        if task.redo:
            markers.clear(task.item)
        elif markers.is_done(task.item):
            if previous and previous.run == task.run:
                return Outcome(Ending.FINISHED, earlier_attempt=True)
            return finished_outcome()
        return await _run_locked(task, channel, markers, lock)
    finally:
        lock.release()


async def _run_locked(task: ExecTask, channel: Channel, markers: DoneMarkers, lock: LockFile) -> Outcome:
    """Several commands may run programs for the same item, but only one at a time may work in its workspace."""
    locks, name = [lock], ""
    if task.workspace is not None:
        folder = Path(task.workspace.folder)
        try:
            name = claim_name(folder, task.item.id, task.item.source)
        except (WorkspaceError, OSError) as error:
            return failed(f"cannot prepare the item's folder: {error}")
        locks.append(LockFile(folder / f".{name}.lock"))
        if not locks[1].acquire():
            return Outcome(Ending.HELD_BY_OTHER_RUN, error="another command is working in its worktree")
    try:
        descriptors = tuple(held.descriptor for held in locks if held.descriptor is not None)
        return await _run(task, channel, markers, descriptors, name)
    finally:
        for held in locks[1:]:
            held.release()


async def _run(
    task: ExecTask, channel: Channel, markers: DoneMarkers, locks: tuple[int, ...], name: str
) -> Outcome:
    """Run the program. It inherits the item's locks, so if it outlives this worker, no other run starts the item."""
    started_at = time.monotonic()
    before = content_digest(task.item, Path(task.working_dir))
    try:
        workspace = _open_workspace(task, name)
    except (WorkspaceError, OSError) as error:
        return failed(f"cannot prepare the item's folder: {error}")
    stopping = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        try:
            sandbox = (
                await stack.enter_async_context(open_sandbox(task.sandbox, workspace))
                if task.sandbox
                else None
            )
            process = _start(task, workspace, locks, sandbox)
        except BlockingIOError as error:
            return failed_transient(f"cannot start {task.command[0]}: {too_many_processes(error)}")
        except (OSError, ValueError) as error:
            return failed(f"cannot start {task.command[0]}: {getattr(error, 'strerror', None) or error}")
        listener = asyncio.create_task(_listen(channel, stopping))
        stopper = asyncio.create_task(_stop_group(stopping))
        try:
            status = await _exit_status(process)
        finally:
            listener.cancel()
            stopper.cancel()
    if sandbox and status > SIGNAL_STATUS:
        status = SIGNAL_STATUS - status
    seconds = time.monotonic() - started_at
    channel.send(ProgramEnded(task.item.id, status, seconds))
    if status == 0:
        try:
            _save_workspace(task, channel, name)
        except (WorkspaceError, OSError) as error:
            return failed(f"the program succeeded, but its changes cannot be saved: {error}")
        # The program may have changed the file itself.
        after = content_digest(task.item, Path(task.working_dir))
        markers.set(task.item, seconds, tuple(dict.fromkeys((before, after))))
    return _outcome(task, status, stopped=stopping.is_set())


def _start(
    task: ExecTask, workspace: Workspace, locks: tuple[int, ...], sandbox: Sandbox | None
) -> "subprocess.Popen[bytes]":
    variables = _environment(task, workspace)
    return subprocess.Popen(
        sandbox.command(task.command, variables) if sandbox else task.command,
        stdin=subprocess.DEVNULL,
        cwd=workspace.working_dir,
        pass_fds=locks,
        preexec_fn=platform().before_exec(),
        env=variables,
    )


async def _exit_status(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the exit without a thread, which asyncio might start: the user may be at the process limit."""
    child_ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, child_ended.set)
    while (status := process.poll()) is None:
        await child_ended.wait()
        child_ended.clear()
    return status


def _open_workspace(task: ExecTask, name: str) -> Workspace:
    """The folder to run in. With --fresh, an earlier workspace is replaced unless it contains unmerged work."""
    if task.workspace is None:
        return Workspace(Path(task.working_dir), Path(task.working_dir))
    workspaces = open_workspaces(task.workspace)
    if task.redo and name in workspaces.items():
        workspaces.remove(name)
    return workspaces.open(name)


def _environment(task: ExecTask, workspace: Workspace) -> dict[str, str]:
    variables = {variable.name: variable.value.reveal() for variable in task.variables}
    if task.workspace is not None:
        variables |= {"AGENTOS_WORKSPACE": str(workspace.path), "AGENTOS_BRANCH": workspace.branch}
    return {**environment(), **variables}


def _save_workspace(task: ExecTask, channel: Channel, name: str) -> None:
    """Commit what the program changed, and report it."""
    if task.workspace is None:
        return
    state = open_workspaces(task.workspace).save(name, f"{name}: {Path(task.command[0]).name}")
    if state.left_out:
        print(f"Not saved: {repositories_text(state.left_out)}", flush=True)
    print(_saved_text(state), flush=True)
    channel.send(
        WorkspaceSaved(
            task.item.id,
            state.path,
            state.branch,
            state.base,
            state.commits,
            state.files,
            state.added_lines,
            state.removed_lines,
            state.conflicts,
        )
    )


def _saved_text(state: WorkspaceState) -> str:
    place = f"branch {state.branch}" if state.branch else state.path
    if not state.files:
        return f"Nothing changed on {place}" if state.branch else f"Nothing changed in {place}"
    files = f"{state.files} file{'' if state.files == 1 else 's'} changed"
    lines = f" (+{state.added_lines} -{state.removed_lines})" if state.branch else ""
    fate = (
        f"conflicts with {state.base} in {', '.join(state.conflicts)}" if state.conflicts else "no conflicts"
    )
    return (
        f"Saved on {place}: {files}{lines}, {fate}" if state.branch else f"Saved in {place}: {files}, {fate}"
    )


def _outcome(task: ExecTask, status: int, *, stopped: bool) -> Outcome:
    if status == 0:
        return Outcome(Ending.FINISHED)
    if stopped:
        return Outcome(Ending.INTERRUPTED)
    if status < 0:
        return failed_transient(exit_cause(status))
    retryable = task.retry_any or status in task.retry_codes
    return (failed_transient if retryable else failed)(exit_cause(status))


async def _listen(channel: Channel, stopping: asyncio.Event) -> None:
    while (command := await channel.next()) is not None:
        if isinstance(command, StopWorker):
            stopping.set()
    _kill_group()


async def _stop_group(stopping: asyncio.Event) -> None:
    """When asked to stop, terminate the program and everything it started; after a grace period, kill them."""
    await stopping.wait()
    os.killpg(0, signal.SIGTERM)
    await asyncio.sleep(STOP_GRACE)
    sys.stdout.flush()
    os.killpg(0, signal.SIGKILL)


def _kill_group() -> None:
    """Kill the whole process group, this process included: nothing may outlive the coordinator."""
    os.killpg(0, signal.SIGKILL)
