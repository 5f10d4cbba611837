"""The server in a process of its own."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentos.cli.offline_server import command

from .serving import ISSUE

PROGRAM = (sys.executable, "-c", "from agentos.cli.offline_server import command; command()")
Process = subprocess.Popen[str]


@contextmanager
def process(*flags: str) -> Iterator[Process]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*PROGRAM, *flags], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def ready(started: Process) -> tuple[str, list[str]]:
    assert started.stdout
    ready_line = json.loads(started.stdout.readline())
    return ready_line["url"], ready_line["keys"]


def send(url: str, secret: str) -> urllib.request.Request:
    body = json.dumps({"contents": [{"parts": [{"text": ISSUE}]}]}).encode()
    return urllib.request.Request(f"{url}/v1/models/any:generateContent", body, {"x-goog-api-key": secret})


def test_it_prints_its_url_and_keys_on_one_line() -> None:
    with process("--keys", "2") as started:
        url, keys = ready(started)
        with urllib.request.urlopen(send(url, keys[1]), timeout=5) as answer:
            assert answer.status == 200
        started.terminate()
        out, err = started.communicate(timeout=5)
    assert out == ""
    assert len(keys) == 2 and keys[0].startswith("offline-key-1-")
    assert url in err and not any(key in err for key in keys)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_promptly_during_calls(number: signal.Signals, tmp_path: Path) -> None:
    call_log = tmp_path / "ledger.jsonl"
    with process("--fault", '{"kind": "hang"}', "--ledger", str(call_log)) as started:
        url, keys = ready(started)
        host, port = url.removeprefix("http://").split(":")
        waiting = subprocess.Popen([sys.executable, "-c", HANG, host, port, keys[0]], stdout=subprocess.PIPE)
        assert waiting.stdout and waiting.stdout.readline()
        started.send_signal(number)
        assert started.wait(10) == 0
        assert started.stderr and "Traceback" not in started.stderr.read()
        waiting.communicate(timeout=5)
    assert json.loads(call_log.read_text())["ending"] == "dropped"


HANG = """
import http.client, json, sys
line = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
text = json.dumps({"contents": [{"parts": [{"text": "hello"}]}]})
line.request("POST", "/v1/models/any:generateContent", text, {"x-goog-api-key": sys.argv[3]})
other = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=5)
running = 0
while not running:
    other.request("GET", "/_offline/ledger")
    running = json.load(other.getresponse())["running"]
print("waiting", flush=True)
try:
    line.getresponse()
except ConnectionError:
    pass
"""


def test_the_flags_for_limits_reach_the_server() -> None:
    flags = ["--rpm", "9", "--tpm", "9000", "--limit", "key-1:rpm=1", "--per-model", "--count-refused"]
    with process("--keys", "1", "--no-hints", *flags) as started:
        url, (secret,) = ready(started)
        with urllib.request.urlopen(send(url, secret), timeout=5) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="429") as refused:
            urllib.request.urlopen(send(url, secret), timeout=5)
        with refused.value as error:
            assert b"details" not in error.read()


def test_it_dies_with_its_parent_on_request() -> None:
    with process("--die-with-parent") as started:
        ready(started)
        assert started.stdin
        started.stdin.close()
        assert started.wait(2) == 0


def test_given_keys_are_accepted_and_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# for the test\nalpha=from-the-file\n")
    with process("--keys-file", str(file), "--key", "beta=from-the-flag") as started:
        url, keys = ready(started)
        assert keys == []
        for secret in ("from-the-file", "from-the-flag"):
            with urllib.request.urlopen(send(url, secret), timeout=5) as answer:
                assert answer.status == 200
        with urllib.request.urlopen(f"{url}/_offline/ledger", timeout=5) as answer:
            assert [call["key"] for call in json.load(answer)["calls"]] == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--host", "0.0.0.0"], "must be a loopback address"),
        (["--latency", "fast"], "MIN,MAX"),
        (["--fault", '{"kind": "teapot"}'], "choose one of"),
        (["--key", "nameless"], "NAME=SECRET"),
        (["--bucket", "key-1"], "KEY=BUCKET"),
        (["--keys", "1", "--key", "key-1=x"], "two keys have the same name"),
        (["--limit", "rpm=5"], "KEY:LIMIT=VALUE"),
        (["--limit", "key-9:rpm=5"], "no key or bucket is named key-9"),
        (["--limit", "key-1:rpm=5", "--bucket", "key-1=p"], "shares the bucket p"),
        (["--seconds", "0"], "not in the range"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(flags: list[str], complaint: str) -> None:
    result = CliRunner().invoke(command, flags)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_the_help_shows_examples_and_every_kind_of_fault() -> None:
    from agentos.offline.fault_effects import PAYLOADS
    from agentos.offline.faults import FaultKind

    help_text = CliRunner().invoke(command, ["--help"]).output
    assert "agentos offline-server --rpm 10" in help_text
    assert not [name for name in (*FaultKind, *PAYLOADS) if name not in help_text]


def test_importing_the_command_imports_only_click() -> None:
    code = "import sys, agentos.cli.offline_server; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"h11", "asyncio", "agentos.offline"} & set(found.stdout.split())
