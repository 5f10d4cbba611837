"""Without a network, and with nothing but loopback: what a run does, and whom it speaks to."""

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
def test_without_a_network_the_run_waits_and_leaves_everything_resumable(harness: RunHarness) -> None:
    harness.issues(42, 43)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        harness.urls.append(f"http://127.0.0.1:{closed.getsockname()[1]}")
    done = harness.run("--all", "--parallel", 2, "--max-wait", "5s")
    assert done.code == 75, done.out + done.err
    assert "no answer" in done.out and "FAILED" not in done.out
    server = harness.server()
    assert harness.run("--all", "--parallel", 2).code == 0
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_where_no_packet_can_leave_the_run_waits_and_leaves_everything_resumable(harness: RunHarness) -> None:
    """Neither a name nor an address can be reached: not refused, but without any network."""
    _require_namespaces()
    harness.issues(42, 43)
    harness.keys = ("canary-by-name-5c1d", "canary-by-number-77aa")
    urls: dict[str, Any] = {
        "GEMINI_BASE_URL_1": "http://models.invalid",
        "GEMINI_BASE_URL_2": "http://192.0.2.1",
    }
    harness.urls.append(urls["GEMINI_BASE_URL_1"])
    words = ("--all", "--parallel", 2, "--max-wait", "5s")
    done = harness.start(*words, before=("unshare", "-n"), **urls).wait(60)
    assert done.code == 75, done.out + done.err
    assert "no answer" in done.out and "FAILED" not in done.out and "Traceback" not in done.out
    assert len(harness.events("lease_released")) > 2, "it was not tried again"
    server = harness.server()
    assert harness.run("--all", "--parallel", 2).code == 0
    assert len(server.answered()) == 4


@pytest.mark.slow
def test_a_run_needs_no_network_but_loopback(harness: RunHarness) -> None:
    """The same run, in a network namespace with nothing but loopback, and outside of it."""
    inside = ("unshare", "-n", "sh", "-c", 'ip link set lo up 2>/dev/null || true; exec "$@"', "sh")
    _require_namespaces()
    harness.issues(42, 43)
    up = subprocess.run([*inside, sys.executable, "-c", _LOOPBACK], capture_output=True, check=False)
    if up.returncode != 0:
        pytest.skip("needs ip (package iproute2), to switch on the loopback of a new network namespace")
    found = []
    for before in (inside, ()):
        done = harness.start("--all", "--parallel", 2, "--offline", before=before).wait(60)
        assert done.code == 0, done.out + done.err
        documents = (harness.document(42), harness.document(43))
        found.append([re.sub(r"(?m)^date: .*$", "", path.read_text()) for path in documents])
        found[-1] += sorted(line for line in done.lines if ">>> Executing" in line)
        for path in documents:
            path.unlink()
    assert found[0] == found[1] and len(found[0]) == 2 + 10


def test_nothing_connects_to_anything_but_loopback(harness: RunHarness) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace (package strace), to see every connect")
    harness.issue(42)
    harness.server()
    log = harness.root / "strace.log"
    sending = "trace=connect,sendto,sendmsg,sendmmsg"
    words = ("strace", "-f", "-qq", "-e", sending, "-e", "signal=none", "-o", str(log))
    done = harness.start("--all", before=words).wait(90)
    if done.code != 0 and "ptrace" in done.err:
        pytest.skip("strace may not trace here")
    assert done.code == 0, done.out + done.err
    named = [line for line in log.read_text(errors="replace").splitlines() if "sa_family=AF_INET" in line]
    abroad = [line for line in named if '"127.0.0.1"' not in line and '"::1"' not in line]
    assert any("connect(" in line for line in named) and not abroad, abroad


def _require_namespaces() -> None:
    new = ["unshare", "-n", "true"]
    if not shutil.which(new[0]) or subprocess.run(new, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root, network namespaces and unshare (package util-linux)")
