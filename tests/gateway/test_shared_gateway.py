"""A gateway beyond loopback: TLS, tokens that outlive it, revocation, and runs that use it as their only key."""

import concurrent.futures
import json
import signal
import socket
import ssl
import stat
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.gateway.harness import MODELS, gemini_body
from tests.gateway.shared import Certificates, issue_token, shared_gateway
from tests.scenarios.harness import KEYS, RunHarness, wait_until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.create(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.255.255.1:8484", "[::]:0"])
def test_an_address_for_other_machines_needs_a_certificate(harness: RunHarness, address: str) -> None:
    harness.server()
    done = harness.run("gateway", "--listen", address, program="agentos")
    assert done.code == 3 and "--tls-cert FILE and --tls-key FILE" in done.err and done.out == ""


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--tls-cert", "c.pem"), 2, "--tls-cert and --tls-key belong together"),
        (("--tls-cert", "c.pem", "--tls-key", "k.pem"), 2, "add --listen HOST:PORT"),
        (("--listen", "127.0.0.1"), 2, "expected HOST:PORT such as 10.0.0.5:8484"),
        (("--listen", "127.0.0.1:99999"), 2, "expected 0 to 65535"),
        (("--listen", "127.0.0.1:0", "--port", "1"), 2, "drop --port"),
        (("--listen", "127.0.0.1:0", "--item", "a"), 2, "agentos gateway token NAME"),
        (("--listen", "0.0.0.0:0", "--tls-cert", "no.pem", "--tls-key", "no.pem"), 3, "cannot read no.pem"),
    ],
)
def test_flags_that_do_not_fit_together_say_what_to_type(
    harness: RunHarness, flags: tuple[str, ...], code: int, message: str
) -> None:
    harness.server()
    done = harness.run("gateway", *flags, program="agentos")
    assert (done.code, message in done.err) == (code, True), done.err


def test_a_certificate_of_another_key_is_a_clear_error(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server()
    words = ("--tls-cert", certificates.authority, "--tls-key", certificates.key)
    done = harness.run("gateway", "--listen", "127.0.0.1:0", *words, program="agentos")
    assert done.code == 3 and "KEY_VALUES_MISMATCH" in done.err and "PEM format" in done.err


def test_tokens_outlive_the_gateway_and_end_when_they_are_revoked(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server()
    anna = issue_token(harness, "anna").strip()
    with shared_gateway(harness, certificates) as gate:
        assert gate.ask(anna).status == 200
        assert gate.ask(f"{anna}x").status == 401
        gate.running.process.kill()
    with shared_gateway(harness, certificates, port=urlsplit(gate.url).port or 0) as gate:
        assert gate.ask(anna).status == 200
        assert issue_token(harness, "anna").strip() == anna
        assert harness.run("gateway", "revoke", "anna", program="agentos").code == 0
        reply = gate.ask(anna)
        assert reply.status == 401 and "nobody has revoked" in reply.json["error"]["message"]
        again = issue_token(harness, "anna").strip()
        assert again != anna
        assert (gate.ask(anna).status, gate.ask(again).status) == (401, 200)
    file = harness.home / "gateway/tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and again not in file.read_text()


def test_the_list_names_every_token_and_shows_none(harness: RunHarness) -> None:
    assert (
        "Issue one with: agentos gateway token NAME"
        in harness.run("gateway", "tokens", program="agentos").out
    )
    tokens = [
        issue_token(harness, name, *flags).strip()
        for name, *flags in (("ci", "--budget", "5"), ("laptop-1",))
    ]
    harness.run("gateway", "revoke", "laptop-1", program="agentos")
    listed = harness.run("gateway", "tokens", program="agentos").out
    assert "ci        valid since" in listed and "budget $5.00" in listed and "laptop-1  revoked" in listed
    assert not any(token in listed for token in tokens)
    found = json.loads(harness.run("gateway", "tokens", "--json", program="agentos").out)
    assert [(token["name"], token["valid"]) for token in found["tokens"]] == [
        ("ci", True),
        ("laptop-1", False),
    ]
    done = harness.run("gateway", "revoke", "nobody", program="agentos")
    assert done.code != 0 and "choose one of ci" in done.err


def test_a_token_file_that_others_can_read_is_refused(harness: RunHarness) -> None:
    issue_token(harness, "ci")
    (harness.home / "gateway/tokens.json").chmod(0o644)
    done = harness.run("gateway", "tokens", program="agentos")
    assert done.code == 3 and "chmod 600" in done.err


def test_a_renewed_certificate_is_used_without_a_restart(harness: RunHarness, tmp_path: Path) -> None:
    harness.server()
    first, second = (Certificates.create(tmp_path / name) for name in ("first", "second"))
    token = issue_token(harness, "ci").strip()
    with shared_gateway(harness, first) as gate:
        assert gate.ask(token).status == 200
        first.key.write_bytes(second.key.read_bytes())
        first.certificate.write_bytes(second.certificate.read_bytes())
        first.authority.write_bytes(second.authority.read_bytes())
        wait_until(lambda: "New connections use the new one" in gate.running.err)
        assert gate.ask(token).status == 200


def test_a_run_on_another_machine_uses_the_gateway_as_its_only_key(
    harness: RunHarness, certificates: Certificates, tmp_path: Path
) -> None:
    server = harness.server()
    with shared_gateway(harness, certificates) as gate, RunHarness.open(tmp_path / "laptop") as laptop:
        tables = issue_token(harness, "laptop-1", "--url", gate.url, "--format", "credentials")
        laptop.home.mkdir(mode=0o700)
        (laptop.home / "credentials.toml").touch(mode=0o600)
        (laptop.home / "credentials.toml").write_text(tables)
        laptop.issues(1, 2, 3)
        refused = laptop.run("--all", "--parallel", "3", "--max-wait", "1s")
        assert "for a private CA, set SSL_CERT_FILE" in refused.out + refused.err
        done = laptop.run("--all", "--parallel", "3", SSL_CERT_FILE=str(certificates.authority))
        assert done.code == 0, done.out + done.err
        assert all(laptop.document(number).exists() for number in (1, 2, 3))
        texts = "".join(
            path.read_text("utf-8", "replace") for path in laptop.home.rglob("*") if path.is_file()
        )
        assert not any(key in texts for key in KEYS)
    assert len(server.answered()) == 6


def test_a_killed_gateway_is_back_with_the_same_address(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server()
    token = issue_token(harness, "ci").strip()
    with shared_gateway(harness, certificates) as gate:
        port = urlsplit(gate.url).port or 0
        gate.running.signal(signal.SIGKILL)
        gate.running.process.wait(10)
        with shared_gateway(harness, certificates, port=port) as again:
            assert again.ask(token).status == 200


@pytest.mark.slow
def test_a_call_that_waits_too_long_is_told_not_yet_and_keeps_its_place(
    harness: RunHarness, certificates: Certificates
) -> None:
    server = harness.server("--latency", "4,4", keys=KEYS[:1])
    token = issue_token(harness, "ci").strip()
    with (
        shared_gateway(harness, certificates, "--max-wait", "1s") as gate,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        first = threads.submit(gate.ask, token, "one")
        wait_until(lambda: len(server.calls()) == 1)
        waiting = gate.ask(token, "two")
        assert waiting.status == 429 and waiting.headers["agentos-not-yet"] == "1"
        assert waiting.headers["retry-after"] == "1"
        assert first.result().status == 200


@pytest.mark.slow
def test_a_run_waits_for_a_busy_gateway_without_learning_a_limit(
    harness: RunHarness, certificates: Certificates, tmp_path: Path
) -> None:
    harness.server("--latency", "1.5,1.5", keys=KEYS[:1])
    with (
        shared_gateway(harness, certificates, "--max-wait", "1s") as gate,
        RunHarness.open(tmp_path / "laptop") as laptop,
    ):
        tables = issue_token(harness, "laptop-1", "--url", gate.url, "--format", "credentials")
        laptop.home.mkdir(mode=0o700)
        (laptop.home / "credentials.toml").touch(mode=0o600)
        (laptop.home / "credentials.toml").write_text(tables)
        laptop.issues(1, 2)
        done = laptop.run("--all", "--parallel", "2", SSL_CERT_FILE=str(certificates.authority))
        assert done.code == 0, done.out + done.err
        refusals = [
            event["refusal"]["kind"] for event in laptop.events("lease_released") if event.get("refusal")
        ]
        kinds = {event["type"] for event in laptop.journal()}
    assert "429, no key" in gate.running.err, gate.running.err
    assert set(refusals) <= {"not yet"}
    assert not kinds & {"key_limited", "limit_learned", "breaker_opened", "key_quarantined"}


def test_the_budget_of_a_token_holds_beyond_a_restart(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server()
    token = issue_token(harness, "ci", "--budget", "0.05").strip()
    with shared_gateway(harness, certificates) as gate:
        replies = [gate.ask(token, f"question {number}").status for number in range(3)]
        assert replies[0] == 200
        gate.running.process.kill()
        gate.running.process.wait(10)
    spending = harness.home / "gateway/spending.jsonl"
    spending.write_text(spending.read_text() + '{"account": "token ci", "cost": 0.05}\n{"acc')
    with shared_gateway(harness, certificates) as gate:
        reply = gate.ask(token)
        assert reply.status == 402 and "budget of $0.05 of token ci" in reply.json["error"]["message"]
        other = issue_token(harness, "other").strip()
        assert gate.ask(other).status == 200


def test_a_submission_brings_its_budget_with_its_calls(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server()
    token = issue_token(harness, "worker").strip()
    with shared_gateway(harness, certificates) as gate:
        assert gate.ask(token, agentos_budget="17=5").status == 200
        reply = gate.ask(token, agentos_budget="17=0.000001")
        assert reply.status == 402 and "of submission 17" in reply.json["error"]["message"]
        assert gate.ask(token).status == 200


def test_a_call_whose_client_leaves_before_the_answer_counts_as_estimated(
    harness: RunHarness, certificates: Certificates
) -> None:
    server = harness.server("--latency", "60,60")
    token = issue_token(harness, "ci", "--budget", "5").strip()
    with shared_gateway(harness, certificates) as gate:
        body, target = gemini_body(), f"/gemini/v1beta/models/{MODELS['gemini']}:generateContent"
        head = f"POST {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-goog-api-key: {token}\r\ncontent-length: {len(body)}\r\n\r\n"
        trust, address = ssl.create_default_context(cafile=str(certificates.authority)), urlsplit(gate.url)
        with (
            socket.create_connection((address.hostname, address.port), timeout=10) as plain,
            trust.wrap_socket(plain, server_hostname=address.hostname) as wire,
        ):
            wire.sendall(head.encode() + body)
            wait_until(lambda: len(server.calls()) == 1)
        wait_until(lambda: "client disconnected" in gate.running.err)
    (record,) = map(json.loads, (harness.home / "gateway/spending.jsonl").read_text().splitlines())
    assert record["account"] == "token ci" and record["cost"] > 0


def test_metrics_and_health_are_told_without_a_token(harness: RunHarness, certificates: Certificates) -> None:
    harness.server()
    token = issue_token(harness, "ci").strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with shared_gateway(harness, certificates, "--metrics", address) as gate:
        assert gate.ask(token).status == 200
        assert (gate.get("/healthz").body, gate.get("/readyz").status) == (b"ok\n", 200)
        wait_until(lambda: b'calls_total{provider="gemini",status="200"} 1' in _metrics(address))
        words = ("gateway", "--listen", "127.0.0.1:0", "--metrics", address)
        second = harness.run(*words, program="agentos")
        assert second.code == 3 and f"cannot serve metrics on {address}" in second.err


def test_a_gateway_whose_only_key_is_rejected_is_healthy_but_not_ready(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server(fault={"kind": "401", "times": None}, keys=KEYS[:1])
    token = issue_token(harness, "ci").strip()
    with shared_gateway(harness, certificates) as gate:
        assert gate.get("/readyz").status == 200
        assert gate.ask(token).status == 403
        ready = gate.get("/readyz")
        assert (ready.status, ready.body, gate.get("/healthz").status) == (503, b"not ready\n", 200)


def test_the_log_can_be_json_with_time_level_and_event_on_every_line(
    harness: RunHarness, certificates: Certificates
) -> None:
    harness.server(fault={"kind": "401", "times": 1}, keys=KEYS[:2])
    token = issue_token(harness, "ci").strip()
    with shared_gateway(harness, certificates, "--log", "json") as gate:
        assert gate.ask(token).status == 200
    lines = [json.loads(line) for line in gate.running.err.splitlines()]
    assert all({"time", "level", "event", "text"} <= line.keys() for line in lines)
    by_event = {line["event"]: line for line in lines}
    assert {"gateway_started", "key_quarantined", "call_ended", "gateway_summary"} <= by_event.keys()
    assert by_event["key_quarantined"]["level"] == "error"
    call = by_event["call_ended"]
    assert (call["item"], call["provider"], call["status"], call["refusals"]) == ("ci", "gemini", 200, 1)
    assert not any(key in gate.running.err for key in KEYS)


def _metrics(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        found: bytes = answer.read()
    return found
