"""Programs that call models, under `agentos exec`: they share the keys, and know none."""

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


def test_a_program_calls_models_with_a_token_and_its_calls_count_for_its_item(harness: RunHarness) -> None:
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
    said = "\n".join(done.lines_of("COORDINATOR"))
    assert "Rate limit hit on key-1" in said and "Verdicts" not in said
    secrets = [key for key in harness.keys if key in done.out]
    assert not secrets


def test_without_a_key_programs_run_all_the_same(harness: RunHarness) -> None:
    done = harness.run("exec", "red", "--", "sh", "-c", "env | grep -c BASE_URL; true", program="agentos")
    assert done.code == 0 and "0" in done.lines_of("red")


@pytest.mark.slow
def test_a_gateway_that_dies_is_started_again_and_no_program_is_lost(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    server = harness.server(fault={"kind": "hang", "matching": "about red"})
    words = ("red", "green", "--", "python3", "agent.py", "{item}")
    running = harness.start("exec", *words, program="agentos")
    wait_until(lambda: len(server.calls()) == 1)
    (gateway,) = [one.pid for one in running.processes() if "agentos gateway" in command_line(one.pid)]
    os.kill(gateway, signal.SIGKILL)
    done = running.wait(60)
    assert done.code == 0, done.out + done.err
    said = done.lines_of("COORDINATOR")
    assert "The gateway process ended (killed by SIGKILL). Restarting it..." in said
    assert "The gateway is back. Items that failed meanwhile are retried." in said
    assert any(line.startswith("red: exit status 1. Retrying") for line in said)
    assert len(server.answered()) == 2 and "Traceback" not in done.err
    again = harness.run("exec", *words, program="agentos")
    assert "Nothing is pending" in again.out
