"""Searches for canary keys in files, streams, reports, argument lists, environments and memory."""

import base64
import json
import os
import signal
import socket
import threading
import urllib.parse

import pytest

from agentos.control.server import socket_path

from .canaries import KEYS, Scan, Search
from .harness import Json, RunHarness, wait_until

found_in = Search(*KEYS)


def telling(number: int) -> list[Json]:
    """Faults of every kind whose message contains the key with this number."""
    key, name = KEYS[number - 1], f"key-{number}"
    echo = f"your key {key}, or {urllib.parse.quote(key, safe='')}, is bad"
    kinds = ["400", "429-minute", "500", "reset", "cut", "html"]
    faults: list[Json] = [
        # Twice each, since another fault such as the hang may take one of the calls.
        {"kind": kind, "message": echo, "retry_delay": 1, "nth": 2 * at + chance, "key": name}
        for at, kind in enumerate(kinds)
        for chance in (1, 2)
    ]
    faults.append({"kind": "hostile", "payload": echo, "matching": "Thing 46", "times": None, "key": name})
    if number == 4:
        faults.append({"kind": "401", "message": echo, "key": name, "times": None})
    if number == 3:
        faults.append({"kind": "429-day", "message": echo, "key": name, "nth_of_key": 2})
    return faults


def wrapped(text: str, width: int, between: str) -> str:
    return between.join(text[at : at + width] for at in range(0, len(text), width))


@pytest.mark.parametrize("key", KEYS)
def test_the_scan_finds_a_canary_in_every_form(key: str) -> None:
    basic = base64.b64encode(f"user:{key}".encode()).decode()
    for content in (
        key,
        json.dumps({"a": key}),
        json.dumps(json.dumps({"a": key})),
        urllib.parse.urlencode({"key": key}),
        urllib.parse.quote(urllib.parse.quote(f"k={key}", safe=""), safe=""),
        basic,
        base64.urlsafe_b64encode(f"xy{key}".encode()).decode(),
        base64.b32encode(key.encode()).decode(),
        wrapped(basic, 20, "\n"),
        wrapped(key, 9, "\n"),
        wrapped(key, 9, "\n[LLD-42] "),
        wrapped(key, 9, '",\n  "'),
        json.dumps(wrapped(key, 9, "\n")),
        key.encode().hex(),
        key.encode().hex(":"),
        key.encode("utf-16"),
        key.encode("utf-16-be"),
        key[::-1],
        "".join(f"\\u{ord(char):04x}" if not char.isalnum() else char for char in key),
    ):
        assert found_in(content), content
    assert not found_in("AIza+Canary is not a key, nor is 9Qz7-ash")


DURING = (["pause"], ["resume"], ["set", "parallel", "2"])
AFTER = (
    ["status"],
    ["runs"],
    ["keys"],
    ["config", "show"],
    ["logs", "LLD-46"],
    ["doctor"],
    *(["report", "--format", form] for form in ("md", "html", "junit", "csv")),
)


def _over_the_socket(harness: RunHarness) -> list[str]:
    """The replies of the control socket to invalid requests."""
    replies = []
    for line in (
        b"secrets",
        b'{"type": "grant_lease"}',
        b'{"type": "pause_requested", "now": "' + b"x" * 99 + b'"}',
    ):
        folder = (harness.home / "logs/parallel/latest").resolve()
        with socket_path(folder) as address, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(address)
            connection.sendall(line + b"\n")
            replies.append(f"{connection.recv(65536).decode()}|")
    return replies


@pytest.mark.slow
def test_failures_of_every_kind_leave_no_secret_anywhere(harness: RunHarness) -> None:
    harness.issues(*range(40, 47))
    file = harness.root / "faults.json"
    hang: Json = {"kind": "hang", "matching": "Thing 41"}
    file.write_text(json.dumps([hang, *(fault for number in (1, 2, 3, 4) for fault in telling(number))]))
    server = harness.server("--faults", str(file), "--latency", "0.1,0.3", keys=KEYS)
    for name in ("faults.json", "server-keys"):
        (harness.root / name).unlink()
    temporary = harness.root / "temporary"
    temporary.mkdir()
    given = {"EDITOR_KEY": KEYS[0], "NETRC": f"x:{KEYS[1]}", "TMPDIR": str(temporary)}
    running = harness.start("--all", "--parallel", 3, "--json", **given)  # type: ignore[arg-type]
    scan = Scan(running, found_in, (harness.project, harness.home, harness.user, temporary))
    thread = threading.Thread(target=scan.scan_until_exit)
    thread.start()
    wait_until(lambda: "hang" in {call["fault"] for call in server.calls(41)})
    outputs = [*_over_the_socket(harness), *(harness.run(*args, program="agentos").out for args in DURING)]
    assert all(outputs) and not [text for text in outputs if found_in(text)]
    os.kill(harness.worker("LLD-41"), signal.SIGKILL)
    done = running.wait(60)
    thread.join()
    assert done.code in (0, 1), done.err
    assert {call["fault"] for call in server.calls()} >= {"400", "429-minute", "500", "reset", "hostile"}
    assert "FAILED" in done.err and "killed by SIGKILL" in done.err
    assert not scan.hits and scan.scanned > 20 and scan.environments > 5
    assert scan.memories or os.geteuid() != 0
    assert scan.files > 50, "no file was read while it was written"
    assert not found_in(done.out) and not found_in(done.err)
    assert "[secret]" in done.out + done.err
    assert any(path.suffix == ".db" for path in harness.home.rglob("*"))
    assert found_in.in_files(harness.project, harness.home, harness.user, temporary) > 20
    for other in AFTER:
        done = harness.run(*other, program="agentos")
        assert done.out and not found_in(done.out + done.err), other


def test_a_key_in_a_broken_credentials_file_is_not_printed(harness: RunHarness) -> None:
    harness.issues(42)
    harness.home.mkdir(mode=0o700)
    file = harness.home / "credentials.toml"
    file.write_text(f'[[credential]]\nkey = "{KEYS[0]}"\nkei = "{KEYS[1]}"\n')
    file.chmod(0o600)
    for args in (["--all"], ["--all", "--dry-run"]):
        done = harness.run(*args)
        assert not found_in(done.out + done.err)
    keys = harness.run("keys", program="agentos")
    assert keys.code == 3 and not found_in(keys.out + keys.err)


def test_an_interrupted_item_keeps_no_key_in_its_checkpoint(harness: RunHarness) -> None:
    harness.issue(42, "weak")
    server = harness.server(fault={"kind": "hang", "nth": 3}, keys=KEYS)
    (harness.root / "server-keys").unlink()
    running = harness.start("--all")
    wait_until(lambda: len(server.calls()) == 3)
    running.signal(signal.SIGKILL)
    running.wait()
    assert "lld_workflow_42.db" in harness.databases()
    assert found_in.in_files(harness.project, harness.home, harness.user) >= 5
    assert not found_in(running.out + running.err)


AGENT = """import json, os, subprocess, sys, time, urllib.error, urllib.request
open(sys.argv[2], "a").write(os.environ["GEMINI_API_KEY"] + "\\n")
body = json.dumps({"contents": [{"parts": [{"text": f"about {sys.argv[1]}"}]}]}).encode()
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/offline-rules-1:generateContent"
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "Content-Type": "application/json"}
for _ in range(3):
    try:
        print(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30).read())
    except urllib.error.HTTPError as error:
        print(error, dict(error.headers), error.read())
"""


@pytest.mark.slow
def test_programs_behind_the_gateway_leak_neither_keys_nor_tokens(harness: RunHarness) -> None:
    (harness.project / "agent.py").write_text(AGENT)
    file, tokens = harness.root / "faults.json", harness.root / "tokens"
    file.write_text(json.dumps([fault for number in (1, 2) for fault in telling(number)]))
    server = harness.server("--faults", str(file), "--latency", "0.1,0.2", keys=KEYS[:2])
    for name in ("faults.json", "server-keys"):
        (harness.root / name).unlink()
    args = ("--parallel", "2", "--", "python3", "agent.py", "{item}", str(tokens))
    running = harness.start("exec", "red", "green", "blue", *args, program="agentos")
    scan = Scan(running, found_in)
    thread = threading.Thread(target=scan.scan_until_exit)
    thread.start()
    done = running.wait(90)
    thread.join()
    assert {call["fault"] for call in server.calls()} & {"400", "500"} and done.code in (0, 1), done.out
    given = set(tokens.read_text().split())
    assert len(given) == 3 and not scan.hits and scan.environments > 3
    anything = Search(*KEYS, *given)
    tokens.unlink()
    assert not anything(done.out + done.err)
    assert anything.in_files(harness.project, harness.home, harness.user) > 5
