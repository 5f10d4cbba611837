"""Canary keys, searched for in every file, stream, argument list and environment."""

import base64
import json
import os
import signal
import threading
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from .stage import Json, Running, Stage, until

KEYS = tuple(f"AIza+Canary/{word}&%=9Qz7-{word}" for word in ("ash", "birch", "cedar", "elder"))


def forms(secret: str) -> set[bytes]:
    """The secret as it might be written: plain, escaped, quoted, in base64 and in hex."""
    raw = secret.encode()
    shifted = [
        base64.b64encode(b"\0" * shift + raw).rstrip(b"=")[(0, 2, 3)[shift] : -2] for shift in range(3)
    ]
    return {
        raw,
        json.dumps(secret)[1:-1].encode(),
        urllib.parse.quote(secret, safe="").encode(),
        urllib.parse.quote(secret).encode(),
        urllib.parse.quote_plus(secret).encode(),
        raw.hex().encode(),
        raw.hex().upper().encode(),
        raw[6:-6],
        *shifted,
        *(part.replace(b"+", b"-").replace(b"/", b"_") for part in shifted),
    }


CANARIES = [form for key in KEYS for form in forms(key)]


def found_in(content: bytes) -> list[bytes]:
    return [form for form in CANARIES if form in content]


@dataclass
class Scan:
    """Looks at the processes of a run, again and again, until it has ended."""

    running: Running
    scanned: int = 0
    environments: int = 0
    hits: list[str] = field(default_factory=list)

    def follow(self) -> None:
        while self.running.process.poll() is None:
            for mark in self.running.processes():
                self._look(mark.pid)
            threading.Event().wait(0.05)

    def _look(self, pid: int) -> None:
        for name in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            self.scanned += bool(content)
            self.environments += name == "environ" and bool(content)
            if found_in(content):
                self.hits.append(f"{name} of {pid}")


def telling(number: int) -> list[Json]:
    """Faults of every kind that tell the key of this number, which whoever is called has seen."""
    key, name = KEYS[number - 1], f"key-{number}"
    echo = f"your key {key}, or {urllib.parse.quote(key, safe='')}, is bad"
    kinds = ["400", "429-minute", "500", "reset", "cut", "html"]
    faults: list[Json] = [
        # Twice each: another fault, such as the hang, may take the call of one.
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


def scan_files(*folders: Path) -> int:
    """How many files were read; none may have a canary."""
    scanned = 0
    for folder in folders:
        for path in folder.rglob("*"):
            assert not found_in(os.fsencode(path))
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                assert not found_in(content), path
                scanned += bool(content)
    return scanned


def test_the_scan_finds_a_canary_in_every_form() -> None:
    for key in KEYS:
        for text in (
            key,
            json.dumps({"a": key}),
            urllib.parse.urlencode({"key": key}),
            base64.b64encode(f"user:{key}".encode()).decode(),
            base64.b64encode(key.encode()).decode(),
            key.encode().hex(),
        ):
            assert found_in(text.encode()), text


def test_no_secret_is_left_anywhere_by_failures_of_every_kind(stage: Stage) -> None:
    stage.issues(*range(40, 47))
    file = stage.root / "faults.json"
    hang: Json = {"kind": "hang", "matching": "Thing 41"}
    file.write_text(json.dumps([hang, *(fault for number in (1, 2, 3, 4) for fault in telling(number))]))
    witness = stage.server("--faults", str(file), "--latency", "0.1,0.3", keys=KEYS)
    for name in ("faults.json", "server-keys"):
        (stage.root / name).unlink()
    running = stage.start("--all", "--parallel", 3, "--json", EDITOR_KEY=KEYS[0], NETRC=f"x:{KEYS[1]}")
    scan = Scan(running)
    thread = threading.Thread(target=scan.follow)
    thread.start()
    until(lambda: "hang" in {call["fault"] for call in witness.calls(41)})
    os.kill(stage.worker("LLD-41"), signal.SIGKILL)
    done = running.end(40)
    thread.join()
    assert done.code in (0, 1), done.err
    assert {call["fault"] for call in witness.calls()} >= {"400", "429-minute", "500", "reset", "hostile"}
    assert "FAILED" in done.err and "killed by SIGKILL" in done.err
    assert not scan.hits and scan.scanned > 20 and scan.environments > 5
    assert not found_in(done.out.encode()) and not found_in(done.err.encode())
    assert "[secret]" in done.out + done.err
    assert any(path.suffix == ".db" for path in stage.home.rglob("*"))
    assert scan_files(stage.project, stage.home, stage.user) > 20
    for other in (["status"], ["runs"], ["keys"], ["logs", "LLD-46"], ["doctor"]):
        said = stage.run(*other, program="agentos")
        assert said.out and not found_in((said.out + said.err).encode())


def test_a_key_given_by_hand_or_file_is_not_repeated(stage: Stage) -> None:
    stage.issues(42)
    stage.home.mkdir(mode=0o700)
    file = stage.home / "credentials.toml"
    file.write_text(f'[[credential]]\nkey = "{KEYS[0]}"\nkei = "{KEYS[1]}"\n')
    file.chmod(0o600)
    for words in (["--all"], ["--all", "--dry-run"]):
        done = stage.run(*words)
        assert not found_in((done.out + done.err).encode())
    keys = stage.run("keys", program="agentos")
    assert keys.code == 3 and not found_in((keys.out + keys.err).encode())


def test_an_interrupted_item_keeps_no_key_in_its_checkpoint(stage: Stage) -> None:
    stage.issue(42, "weak")
    witness = stage.server(fault={"kind": "hang", "nth": 3}, keys=KEYS)
    (stage.root / "server-keys").unlink()
    running = stage.start("--all")
    until(lambda: len(witness.calls()) == 3)
    running.signal(signal.SIGKILL)
    running.end()
    assert "lld_workflow_42.db" in stage.databases()
    assert scan_files(stage.project, stage.home, stage.user) >= 5
    assert not found_in(running.out.encode() + running.err.encode())
