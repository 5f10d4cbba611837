"""`agentos gateway` as people, scripts and runs use it."""

import json
import signal
import socket
import subprocess

import pytest

from agentos.core.protocol.events import CallCompleted
from agentos.gateway.child import start_gateway
from tests.audits.tree import ROOT
from tests.gateway.harness import RunningGateway, ask_whole, gateway
from tests.scenarios.harness import KEYS, RunHarness, wait_until

ASK = (
    'curl -s -H "x-goog-api-key: $GEMINI_API_KEY" -d \'{"contents": [{"parts": [{"text": "x"}]}]}\' '
    "$GEMINI_BASE_URL/v1beta/models/gemini-2.5-pro:generateContent"
)


def test_a_shell_can_source_the_variables(harness: RunHarness) -> None:
    harness.server()
    running = harness.start("gateway", program="agentos")
    wait_until(lambda: running.out.endswith("\n"))
    answer = subprocess.run(
        ["sh", "-c", f". {running.out_path}; {ASK}"], capture_output=True, text=True, timeout=20, check=True
    )
    assert json.loads(answer.stdout)["usageMetadata"]["totalTokenCount"]


def test_ctrl_c_stops_it_with_tokens_and_cost_per_item(harness: RunHarness) -> None:
    harness.server()
    terminal = harness.terminal("gateway", "--item", "LLD-7", program="agentos")
    terminal.wait_for("Listening on http://127.0.0.1:")
    found = dict(
        line.removeprefix("export ").split("=", 1)
        for line in terminal.screen.splitlines()
        if "export" in line
    )
    assert ask_whole("gemini", found)
    terminal.wait_for("[LLD-7] gemini gemini-2.5-pro, 200 with key-1")
    terminal.ctrl_c()
    done = terminal.wait()
    assert done.code == 0
    assert "[GATEWAY] Served 1 call in" in done.out
    assert "[GATEWAY]   LLD-7  1 call, " in done.out
    assert "Traceback" not in done.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_at_once_even_during_a_call(harness: RunHarness, number: signal.Signals) -> None:
    server = harness.server(fault={"kind": "hang"})
    with gateway(harness) as gate, gate.connect() as wire:
        wire.sendall(_call(gate))
        wait_until(lambda: len(server.calls()) == 1)
        gate.running.signal(number)
        done = gate.running.wait(5)
        assert done.code == 0 and "Served 1 call" in done.err and "Traceback" not in done.err
    wait_until(lambda: server.calls()[0]["ending"] == "dropped")


def test_without_a_key_it_says_how_to_add_one(harness: RunHarness) -> None:
    done = harness.run("gateway", program="agentos")
    assert done.code == 4 and "export GEMINI_API_KEY_1=" in done.err and done.out == ""


def test_a_port_in_use_is_a_clear_error(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness) as gate:
        port = gate.url.rpartition(":")[2]
        done = harness.run("gateway", "--port", port, program="agentos")
        assert done.code == 2 and f"cannot listen on port {port}" in done.err and "Served" not in done.err


def test_two_gateways_with_one_key_take_turns(harness: RunHarness) -> None:
    server = harness.server("--latency", "0.3,0.3", keys=KEYS[:1])
    with (
        gateway(harness) as gateway_1,
        gateway(harness) as other,
        gateway_1.connect() as first,
        other.connect() as second,
    ):
        for gate, wire in ((gateway_1, first), (other, second)):
            wire.sendall(_call(gate))
        for wire in (first, second):
            assert b"HTTP/1.1 200" in wire.recv(65536)
    call_log = server.ledger()
    assert (call_log["max_concurrent_all"], call_log["seen"]) == (1, 2)


def test_gateways_share_rate_limits(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "429-minute", "nth": 1, "retry_delay": 50}, keys=KEYS[:1])
    with gateway(harness, "--max-wait", "1s") as first, gateway(harness, "--max-wait", "1s") as second:
        assert first.ask().status == 429
        assert second.ask().status == 429
        assert len(server.calls()) == 1


def test_a_key_added_to_the_file_is_used(harness: RunHarness) -> None:
    harness.server(fault={"kind": "401", "key": "key-1", "times": None}, keys=KEYS[:2])
    harness.keys = KEYS[:1]
    with gateway(harness) as gate:
        assert gate.ask().status == 403
        file = harness.home / "credentials.toml"
        file.touch(mode=0o600)
        file.write_text(f'[[credential]]\nkey = "{KEYS[1]}"\nbase_url = "{harness.urls[-1]}"\n')
        gate.wait_for("[GATEWAY] Credentials changed (added: key-2).")
        assert gate.ask().status == 200


def test_a_budget_is_enforced_and_requires_prices(harness: RunHarness) -> None:
    harness.server()
    with gateway(harness, "--budget", "0.0001") as gate:
        reply = gate.ask()
        assert reply.status == 402 and "would exceed the budget" in reply.json["error"]["message"]
        path = "/gemini/v1beta/models/unheard-of:generateContent"
        reply = gate.call("POST", path, b'{"contents": []}', x_goog_api_key=gate.token)
        assert reply.status == 402 and '[prices."unheard-of"]' in reply.json["error"]["message"]


def test_offline_mode_needs_no_key_and_costs_nothing(harness: RunHarness) -> None:
    running = harness.start("gateway", "--offline", program="agentos")
    wait_until(lambda: "OPENAI_API_KEY" in running.out)
    unset, *exports = running.out.splitlines()
    assert unset == "unset GOOGLE_API_KEY", "Google's SDK would use it instead of the token"
    found = dict(line.removeprefix("export ").split("=", 1) for line in exports)
    for provider in ("gemini", "anthropic", "openai"):
        assert ask_whole(provider, found)
    running.signal(signal.SIGINT)
    assert "Served 3 calls" in (done := running.wait()).err and "cost $0.00, " in done.err


def test_a_run_receives_the_usage_of_each_item_from_its_gateway(harness: RunHarness) -> None:
    harness.server()
    child = start_gateway(harness.environment())
    try:
        for item in ("LLD-1", "LLD-2"):
            assert ask_whole("gemini", child.environment(item))
        heard = child.events()
        counted = [next(heard), next(heard)]
    finally:
        child.close()
    assert [event.item for event in counted if isinstance(event, CallCompleted)] == ["LLD-1", "LLD-2"]
    assert child.process.returncode == 0


def test_a_gateway_that_does_not_start_is_a_preflight_error(harness: RunHarness) -> None:
    from agentos.core.errors import PreflightError

    with pytest.raises(PreflightError, match=r"exit status 4\): no API key for gemini"):
        start_gateway(harness.environment())


def _call(gate: RunningGateway) -> bytes:
    body = b'{"contents": [{"parts": [{"text": "x"}]}]}'
    head = "POST /gemini/v1/models/m:generateContent HTTP/1.1\r\nHost: localhost\r\n"
    return f"{head}x-goog-api-key: {gate.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_two_items_in_one_shell_are_refused_and_listed_as_json(harness: RunHarness) -> None:
    harness.server()
    refused = harness.run("gateway", "--item", "writer", "--item", "critic", program="agentos")
    assert refused.code == 2 and "add --format json" in refused.err and refused.out == ""
    with gateway(harness, "--item", "writer", "--item", "critic") as gate:
        assert gate.ask().status == 200


def test_the_documented_script_ends_when_the_port_is_taken(harness: RunHarness) -> None:
    page = (ROOT / "docs/how-to/gateway.md").read_text("utf-8")
    script = page.partition("```sh\n")[2].partition("```")[0]
    harness.server()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        script = script.replace("8484", str(taken.getsockname()[1]))
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=harness.project,
            env=harness.environment(),
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert "cannot listen on port" in done.stderr and "export" not in done.stdout
