"""Programs that call models under `agentos exec`: they share the keys without seeing them."""

import os
import signal

import pytest

from .harness import RunHarness, command_line, wait_until

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
        assert "environment ['GEMINI_API_KEY', 'GOOGLE_API_KEY']" in done.lines_of(item)
    assert len(server.answered()) == 3
    summary = harness.summary()
    assert summary["usage"]["calls"] == 3, summary
    output = "\n".join(done.lines_of("COORDINATOR"))
    assert "Rate limit hit on key-1" in output and "Verdicts" not in output
    secrets = [key for key in harness.keys if key in done.out]
    assert not secrets


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
    assert "The gateway is back. Items that failed meanwhile are retried." in output
    assert any(line.startswith("red: exit status 1. Retrying") for line in output)
    assert len(server.answered()) == 2 and "Traceback" not in done.err
    again = harness.run("exec", *args, program="agentos")
    assert "Nothing is pending" in again.out
