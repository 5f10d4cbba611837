"""What the fork server does while it is idle: it runs warm-up items."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentos.engines.template_client import ForkServerProcess, WorkerSpec
from agentos.models.warmup import HTTP_LIBRARIES, STREAMS, http_library
from agentos.worker.warm_up_items import PROJECT, WARM_UP_ITEMS, run_warm_up_item

REPOSITORY = Path(__file__).parents[2]
DEADLINE = 20.0  # seconds
STEPS = 3

# Runs as the fork server does: everything warm, then warm-up items. They must leave nothing that makes forking unsafe.
PROBE = """
import os, sys, threading, asyncio
import agentos.models.gemini.client
from agentos.worker.main import warm_up
from agentos.worker.warm_up_items import run_warm_up_items
warm_up()
calls, before = [], sorted(os.listdir("/proc/self/fd"))
opening = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def note(name, arguments):
    if name in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.mkdir", "os.remove", "os.rename"):
        calls.append(name)
    if name == "open" and isinstance(arguments[2], int) and arguments[2] & opening:
        calls.append(arguments[0])
sys.addaudithook(note)
steps = sum(1 for _ in run_warm_up_items())
print(steps, calls, threading.active_count(), sorted(os.listdir("/proc/self/fd")) == before)
"""
_steps_done = 0


def count_steps() -> Iterator[None]:
    global _steps_done
    for _ in range(STEPS):
        _steps_done += 1
        yield
    raise RuntimeError("a step that fails ends the idle work, and nothing else")


def report_steps(channel: socket.socket) -> None:
    channel.sendall(f"{_steps_done}\n".encode())


@pytest.mark.parametrize("vendor", STREAMS)
def test_a_made_up_item_is_finished_with_every_vendors_sdk(vendor: str) -> None:
    library = http_library(vendor)
    assert library and run_warm_up_item(vendor, library)
    assert not PROJECT.exists()


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_a_warm_up_item_with_another_http_library_than_the_sdks_ends(vendor: str) -> None:
    """As with a google-genai below 3: a refused call is repeated, but not forever."""
    (other,) = (library for library in HTTP_LIBRARIES if library != http_library(vendor))
    assert not run_warm_up_item(vendor, other)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_warm_up_items_open_no_connection_and_no_file_and_leave_no_thread_so_that_forking_is_safe() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{WARM_UP_ITEMS + 1} [] 1 True\n"  # the first step imports modules


def test_the_fork_server_works_while_it_is_idle_and_survives_work_that_fails() -> None:
    """Workers that start later find what was done; it starts them after the work has failed, too."""
    with _fork_server("tests.engines.test_warm_up_items:count_steps") as fork_server:
        deadline = time.monotonic() + DEADLINE
        seen = [_steps_seen_by_a_worker(fork_server)]
        while seen[-1] < STEPS and time.monotonic() < deadline:
            seen.append(_steps_seen_by_a_worker(fork_server))
        seen.append(_steps_seen_by_a_worker(fork_server))
    assert seen[-1] == STEPS


def test_idle_work_that_does_not_exist_yet_does_not_keep_workers_from_starting() -> None:
    with _fork_server("") as fork_server:
        assert _steps_seen_by_a_worker(fork_server) == 0


@contextlib.contextmanager
def _fork_server(idle: str) -> Iterator[ForkServerProcess]:
    environment = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]), "PATH": os.defpath}
    spec = WorkerSpec("tests.engines.test_warm_up_items:report_steps", (), environment, idle=idle)
    with contextlib.closing(ForkServerProcess(spec)) as fork_server:
        yield fork_server


def _steps_seen_by_a_worker(fork_server: ForkServerProcess) -> int:
    ours, channel = socket.socketpair()
    with ours, channel, open(os.devnull, "wb") as output:
        fork_server.send({"start": "LLD-1"}, (channel.fileno(), output.fileno()))
        channel.close()
        ours.settimeout(DEADLINE)
        return int(ours.makefile().readline())
