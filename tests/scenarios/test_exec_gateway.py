"""Programs that call models under `agentos exec`: they share the keys without seeing them."""

import os
import shutil
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest

from agentos.gateway.child import MAX_STARTS
from tests.faults.shim import shim_for

from .harness import PORTABLE_CALLS, CompletedCommand, RunHarness, command_line, wait_until

AGENT = """import json, os, sys, urllib.request
body = json.dumps({"contents": [{"parts": [{"text": f"about {sys.argv[1]}"}]}]}).encode()
key = os.environ["GEMINI_API_KEY"]
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/offline-rules-1:generateContent"
request = urllib.request.Request(url, body, {"x-goog-api-key": key, "Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=30) as answer:
    print("tokens", json.load(answer)["usageMetadata"]["totalTokenCount"])
print("environment", sorted(name for name, value in os.environ.items() if "KEY" in name))
"""


def test_calls_that_a_program_makes_with_its_token_count_for_its_item(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    server = harness.server("--limit", "key-1:rpm=1", keys=harness.keys[:2])
    done = harness.run(
        "exec",
        "red",
        "green",
        "blue",
        "--parallel",
        "3",
        "--",
        "python3",
        "agent.py",
        "{item}",
        program="agentos",
    )
    assert done.code == 0, done.out
    for item in ("red", "green", "blue"):
        assert any(line.startswith("tokens ") for line in done.lines_of(item))
        # With GOOGLE_API_KEY beside it, Google's SDK writes a warning for every client.
        assert "environment ['GEMINI_API_KEY']" in done.lines_of(item)
    assert len(server.answered()) == 3
    summary = harness.summary()
    assert summary["usage"]["calls"] == 3, summary
    output = "\n".join(done.lines_of("COORDINATOR"))
    assert "Rate limit hit on key-1" in output and "Verdicts" not in output
    secrets = [key for key in harness.keys if key in done.out]
    assert not secrets


SPY = """import glob, os
seen = 0
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        text = open(path, "rb").read()
    except OSError:
        continue
    seen += 1
    if b"canary-key" in text:
        print("found a key in", open(os.path.dirname(path) + "/cmdline").read())
print("looked into", "some" if seen else "no", "processes")
"""


def test_a_program_finds_no_key_in_any_process_of_its_user(harness: RunHarness) -> None:
    if PORTABLE_CALLS:
        pytest.skip("only Linux hides a process's environment from other processes of its user")
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (package util-linux), to take the right to debug away")
    (harness.project / "spy.py").write_text(SPY)
    harness.server()
    command = ("exec", "red", "--", "python3", "spy.py")
    started = harness.start(
        *command, program="agentos", before=("setpriv", "--bounding-set=-sys_ptrace,-perfmon,-sys_admin")
    )
    done = started.wait(60)
    assert done.code == 0 and done.lines_of("red")[0] == "looked into some processes", done.out


def test_a_command_that_watches_a_run_shows_its_keys_to_no_other_process(harness: RunHarness) -> None:
    if PORTABLE_CALLS:
        pytest.skip("only Linux hides a process's environment from other processes of its user")
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv (package util-linux), to take the right to debug away")
    unprivileged = ("setpriv", "--bounding-set=-sys_ptrace,-perfmon,-sys_admin")
    (harness.project / "spy.py").write_text(SPY)
    harness.issues(40)
    server = harness.server(fault={"kind": "hang"})
    running = harness.start("--all", before=unprivileged)
    wait_until(lambda: len(server.calls()) == 1)
    waiting = harness.start("wait", program="agentos", before=unprivileged)

    def spied() -> list[str]:
        command = [*unprivileged, "python3", "spy.py"]
        done = subprocess.run(command, cwd=harness.project, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    # The first instants of a process, until its first instruction, cannot be hidden.
    wait_until(lambda: "agentos" in command_line(waiting.pid) and spied() == ["looked into some processes"])
    assert waiting.process.poll() is None and running.process.poll() is None


def test_programs_run_without_a_key(harness: RunHarness) -> None:
    done = harness.run("exec", "red", "--", "sh", "-c", "env | grep -c BASE_URL; true", program="agentos")
    assert done.code == 0 and "0" in done.lines_of("red")


@pytest.mark.slow
def test_a_killed_gateway_is_restarted_and_no_program_is_lost(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    server = harness.server(fault={"kind": "hang", "matching": "about red"})
    args = ("red", "green", "--", "python3", "agent.py", "{item}")
    running = harness.start("exec", *args, program="agentos")
    wait_until(lambda: len(server.calls()) == 1)
    (gateway,) = [
        process.pid for process in running.processes() if "agentos gateway" in command_line(process.pid)
    ]
    os.kill(gateway, signal.SIGKILL)
    done = running.wait(60)
    assert done.code == 0, done.out + done.err
    output = done.lines_of("COORDINATOR")
    assert "The gateway process ended (killed by SIGKILL). Restarting it..." in output
    assert "The gateway is back. Items that failed in the meantime are retried." in output
    assert any(line.startswith("red: exit status 1. Retrying") for line in output)
    assert len(server.answered()) == 2 and "Traceback" not in done.err
    again = harness.run("exec", *args, program="agentos")
    assert "Nothing is pending" in again.out


def test_a_gateway_killed_during_its_start_is_started_again(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    server = harness.server()
    shim = shim_for(harness)
    args = ("exec", "red", "--", "python3", "agent.py", "{item}")
    done = harness.run(*args, program="agentos", **shim.environment(who="gateway", kill_at=1))
    assert shim.kills == 1 and done.code == 0, done.out + done.err
    assert "The gateway process ended during its start (killed by SIGKILL). Restarting it..." in done.out
    assert len(server.answered()) == 1 and "Traceback" not in done.out + done.err


def test_what_the_gateway_writes_to_stderr_is_shown_without_the_keys(harness: RunHarness) -> None:
    """Here: the traceback of an interpreter whose start-up file fails, which reaches the gateway alone."""
    harness.server()
    folder = harness.root / "start-up"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, sys\nif 'gateway' in sys.orig_argv:\n"
        "    print(f'Error: cannot serve {sys.stdin.readline()}', file=sys.stderr)\n    os._exit(3)\n"
    )
    done = harness.run("exec", "red", "--", "true", program="agentos", PYTHONPATH=str(folder))
    assert done.code == 3
    assert "Error: the gateway did not start (exit status 3): cannot serve {" in done.err
    assert '"GEMINI_API_KEY_1": "[secret]"' in done.err


@pytest.mark.slow
def test_a_gateway_that_cannot_come_back_says_why_and_programs_run_without_it(harness: RunHarness) -> None:
    """Its port is taken by another process while it is down."""
    harness.server()
    script = "echo $GEMINI_BASE_URL > new; mv new url; while [ ! -e go ]; do sleep 0.05; done"
    running = harness.start("exec", "red", "--", "sh", "-c", script, program="agentos")
    wait_until((harness.project / "url").exists)
    (gateway,) = [found.pid for found in running.processes() if "agentos gateway" in command_line(found.pid)]
    port = urlsplit((harness.project / "url").read_text().strip()).port
    assert port
    os.kill(gateway, signal.SIGSTOP)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(gateway, signal.SIGKILL)
        wait_until(lambda: _binds(taken, port))
        taken.listen()
        running.wait_for("Programs get no keys from now on.", 60)
        (harness.project / "go").touch()
        done = running.wait(60)
    assert done.code == 0, done.out + done.err
    output = done.lines_of("COORDINATOR")
    assert sum(line.startswith("The gateway process ended") for line in output) == MAX_STARTS
    assert any(line.startswith(f"Gateway: Error: cannot listen on port {port}") for line in output), output
    assert "Traceback" not in done.out + done.err


def _binds(found: socket.socket, port: int) -> bool:
    try:
        found.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


CALLS = """import json, os, sys, urllib.error, urllib.request
body = json.dumps({"contents": [{"parts": [{"text": "word " * 800}]}]}).encode()
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:generateContent"
request = urllib.request.Request(url, body, {"x-goog-api-key": os.environ["GEMINI_API_KEY"]})
for _ in range(int(sys.argv[1])):
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as error:
        print("refused", error.code, error.read().decode())
        sys.exit(1)
"""


def calls(harness: RunHarness, number: int, *flags: object) -> CompletedCommand:
    (harness.project / "agent.py").write_text(CALLS)
    command = ("--", "python3", "agent.py", str(number), "{item}")
    return harness.run("exec", "red", "green", *flags, *command, program="agentos")


def test_programs_run_offline_and_their_cost_stops_the_run_at_the_budget(harness: RunHarness) -> None:
    done = calls(harness, 1, "--offline", "--parallel", "2")
    assert done.code == 0, done.out
    assert harness.summary()["usage"]["calls"] == 2
    refused = calls(harness, 1, "--no-gateway", "--offline")
    assert refused.code == 2 and "need the gateway" in refused.err


def test_a_budget_ends_the_run_with_75_and_the_command_to_go_on(harness: RunHarness) -> None:
    server = harness.server()
    done = calls(harness, 40, "--budget", "0.05")
    assert done.code == 75, done.out
    lines = done.lines_of("COORDINATOR")
    assert any("would exceed the budget of $0.05" in line for line in lines)
    assert "Resume" in lines[-1] and 0 < len(server.answered()) < 40


@pytest.mark.slow
def test_waiting_for_a_key_of_the_gateway_is_told_as_waiting(harness: RunHarness) -> None:
    harness.server("--latency", "1,1", keys=harness.keys[:1])
    done = calls(harness, 2, "--parallel", "2")
    assert done.code == 0, done.out
    assert "1 key slot for 2 workers" in done.out
    waited = [line for line in done.lines_of("COORDINATOR") if "waiting for keys" in line or "waited" in line]
    assert waited and "0.0s" not in waited[-1], done.out
    assert harness.events("key_wait_started") and harness.events("key_wait_ended")


STREAMING_AGENT = """import http.client, json, os, sys, urllib.request
body = json.dumps({"contents": [{"parts": [{"text": "about a thing"}]}]}).encode()
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/offline-rules-1:streamGenerateContent?alt=sse"
finished = 0
try:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
        open("begun", "w").close()
        finished = answer.read().count(b"finishReason")
except (OSError, http.client.HTTPException) as error:
    print("broken after", finished, "ends", flush=True)
    sys.exit(75)
print("whole with", finished, "end")
"""


@pytest.mark.slow
def test_a_gateway_killed_in_a_stream_breaks_the_connection_and_never_mixes_answers(
    harness: RunHarness,
) -> None:
    (harness.project / "agent.py").write_text(STREAMING_AGENT)
    harness.server(fault={"kind": "drip", "nth": 1, "seconds": 30})
    running = harness.start("exec", "red", "--", "python3", "agent.py", program="agentos")
    wait_until((harness.project / "begun").exists, 60)
    (gateway,) = [found.pid for found in running.processes() if "agentos gateway" in command_line(found.pid)]
    os.kill(gateway, signal.SIGKILL)
    done = running.wait(60)
    assert done.code == 0, done.out + done.err
    lines = [line for line in done.lines_of("red") if line.startswith(("broken", "whole"))]
    assert lines == ["broken after 0 ends", "whole with 1 end"], done.out
