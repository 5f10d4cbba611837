"""Runs without a network or with loopback only, and the addresses that a run connects to."""

import re
import shutil
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.scenarios.harness import RunHarness

_LOOPBACK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 2)
"""


@pytest.mark.long
def test_a_run_whose_server_refuses_connections_waits_and_stays_resumable(harness: RunHarness) -> None:
    harness.issues(42, 43)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        harness.urls.append(f"http://127.0.0.1:{closed.getsockname()[1]}")
    done = harness.run("--all", "--parallel", 2, "--max-wait", "5s")
    assert done.code == 75, done.out + done.err
    assert "refused the connection" in done.out and "FAILED" not in done.out
    server = harness.server()
    assert harness.run("--all", "--parallel", 2).code == 0
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_a_run_in_an_isolated_network_namespace_waits_and_stays_resumable(harness: RunHarness) -> None:
    """Names do not resolve and addresses are unreachable, which is different from a refused connection."""
    _require_namespaces()
    harness.issues(42, 43)
    harness.keys = ("canary-by-name-5c1d", "canary-by-number-77aa")
    urls: dict[str, Any] = {
        "GEMINI_BASE_URL_1": "http://models.invalid",
        "GEMINI_BASE_URL_2": "http://192.0.2.1",
    }
    harness.urls.append(urls["GEMINI_BASE_URL_1"])
    args = ("--all", "--parallel", 2, "--max-wait", "5s")
    done = harness.start(*args, before=("unshare", "-n"), **urls).wait(60)
    assert done.code == 75, done.out + done.err
    # The message names the error of the call that failed last, on either key.
    assert "cannot be resolved" in done.out or "no response from 192.0.2.1" in done.out, done.out
    assert "FAILED" not in done.out and "Traceback" not in done.out
    assert len(harness.events("lease_released")) > 2, "the calls were not retried"
    server = harness.server()
    assert harness.run("--all", "--parallel", 2).code == 0
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_an_offline_run_needs_only_loopback(harness: RunHarness) -> None:
    """The same run gives the same results inside a network namespace with loopback only and outside of it."""
    inside = ("unshare", "-n", "sh", "-c", 'ip link set lo up 2>/dev/null || true; exec "$@"', "sh")
    _require_namespaces()
    harness.issues(42, 43)
    loopback_check = subprocess.run(
        [*inside, sys.executable, "-c", _LOOPBACK], capture_output=True, check=False
    )
    if loopback_check.returncode != 0:
        pytest.skip("needs ip (package iproute2) to enable loopback in a new network namespace")
    results = []
    for before in (inside, ()):
        done = harness.start("--all", "--parallel", 2, "--offline", before=before).wait(60)
        assert done.code == 0, done.out + done.err
        documents = (harness.document(42), harness.document(43))
        results.append([re.sub(r"(?m)^date: .*$", "", path.read_text()) for path in documents])
        results[-1] += sorted(line for line in done.lines if ">>> Executing" in line)
        for path in documents:
            path.unlink()
    assert results[0] == results[1] and len(results[0]) == 2 + 10


def test_every_connection_goes_to_loopback(harness: RunHarness) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace (package strace) to trace every connect")
    harness.issue(42)
    harness.server()
    log = harness.root / "strace.log"
    syscalls = "trace=connect,sendto,sendmsg,sendmmsg"
    strace = ("strace", "-f", "-qq", "-e", syscalls, "-e", "signal=none", "-o", str(log))
    done = harness.start("--all", before=strace).wait(90)
    if done.code != 0 and "ptrace" in done.err:
        pytest.skip("strace is not permitted here")
    assert done.code == 0, done.out + done.err
    internet_calls = [
        line for line in log.read_text(errors="replace").splitlines() if "sa_family=AF_INET" in line
    ]
    external_calls = [line for line in internet_calls if '"127.0.0.1"' not in line and '"::1"' not in line]
    assert any("connect(" in line for line in internet_calls) and not external_calls, external_calls


def _require_namespaces() -> None:
    command = ["unshare", "-n", "true"]
    if (
        not shutil.which(command[0])
        or subprocess.run(command, capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("needs root, network namespaces and unshare (package util-linux)")
