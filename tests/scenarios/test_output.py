"""Output consists of whole lines with the right prefix, whatever workers and models write."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import StartWorker
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec
from agentos.outputs.console import Console
from agentos.outputs.logfiles import LogFiles
from agentos.storage.files import private_file

from .harness import PROGRAMS, RunHarness, command_line, descendants, full_pipe, title_of, wait_until
from .noisy_workers import OUTPUTS

REPOSITORY = Path(__file__).parents[2]
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def collect_output(tmp_path: Path) -> dict[str, list[str]]:
    """Run every kind of output in a real worker at once, through the real engine and listeners."""
    lines: list[str] = []
    kinds = {f"LLD-{number}": kind for number, kind in enumerate(OUTPUTS, 1)}
    spec = WorkerSpec(
        "tests.scenarios.noisy_workers:main",
        (),
        {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]), "PATH": os.defpath},
    )
    console = Console(lines.append, str, lines.append)
    logs = LogFiles(tmp_path, private_file, lambda error: lines.append(str(error)))
    with contextlib.closing(ProcessEngine(spec, lambda command: kinds[command.item], str)) as engine:
        for slot, item in enumerate(kinds, 1):
            engine.execute(StartWorker(item, slot, 1))
        ended: set[str] = set()
        deadline = time.monotonic() + 30
        while ended != set(kinds) and time.monotonic() < deadline:
            for event in engine.receive(1.0):
                if isinstance(event, events.WorkerExited):
                    ended.add(event.item)
                if isinstance(event, events.LineWritten):
                    console.on_event(event, 0.0)
                    logs.on_event(event, 0.0)
        assert ended == set(kinds)
        wait_until(
            lambda: not [mark for mark in descendants(os.getpid()) if "sleep 60" in command_line(mark.pid)], 5
        )
    logs.close()
    assert all(re.match(r"\[LLD-\d\]( |$)", line) and not CONTROLS.search(line) for line in lines)
    by_kind = {
        kind: [
            line.removeprefix(f"[{item}]").removeprefix(" ") for line in lines if line.startswith(f"[{item}]")
        ]
        for item, kind in kinds.items()
    }
    for item, kind in kinds.items():
        logged = (tmp_path / f"{item}.log").read_text("utf-8").splitlines()
        assert [line.rstrip() for line in logged] == by_kind[kind]
    return by_kind


def test_no_line_is_split_or_forged_whatever_a_worker_writes(tmp_path: Path) -> None:
    printed = collect_output(tmp_path)
    assert printed["pieces"] == ["one line in pieces", "and a second"]
    assert printed["both"] == [f"line {number} of 200" for number in range(200)]
    long = printed["length"]
    assert (long[0], long[-1]) == ("before", "after")
    assert sum(line.count("x") for line in long) == 1024 * 1024
    assert max(map(len, long)) <= 8192 + 2 and all(line.endswith(" …") for line in long[1:-2])
    assert printed["bytes"][0] == "café" and "binary" in printed["bytes"][1]
    assert printed["bytes"][2] == "bell and backspace"
    assert printed["bars"] == ["100% [##########]", "a title  and a clipboard  here", "red"]
    assert printed["disguise"] == [
        "[COORDINATOR] done",
        "[COORDINATOR] done",
        "[LLD-1] FAILED: no",
        "[LLD-2] x",
    ]
    assert sorted(printed["children"]) == ["a child says", "a grandchild says", "and complains"]


def test_a_hostile_model_cannot_forge_prefixes_or_send_terminal_escapes(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(fault={"kind": "hostile", "payload": "all", "times": None})
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 0, done.out + done.err
    assert {call["fault"] for call in server.calls()} == {"hostile"}
    assert all(re.match(r"\[(COORDINATOR|LLD-42|LLD-43)\]( |$)", line) for line in done.lines)
    assert not CONTROLS.search(done.out.replace("\n", ""))
    assert sum("Execution complete:" in line for line in done.lines_of("COORDINATOR")) == 1
    assert not list(Path("/tmp").glob("agentos-escaped*"))
    written = {path.name for path in harness.project.rglob("LLD-*.md")}
    assert written == {"LLD-042.md", "LLD-043.md"}


def test_a_verdict_in_prose_is_asked_for_once_more_and_never_an_approval(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "hostile", "payload": "prose", "role": "review", "times": None})
    done = harness.run("--all")
    assert done.code == 1 and "FAILED: the reviewer's answers cannot be read" in done.out
    assert len(server.calls()) == 3  # one draft, two reviews
    assert not harness.document(42).exists() and not harness.revision(42).exists()


def test_a_closed_pipe_does_not_affect_the_run(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    server = harness.server("--latency", "0.2,0.2")
    command = [str(PROGRAMS / "lld-workflow"), "--all", "--parallel", "2"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=harness.project,
        env=harness.environment(),
        start_new_session=True,
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline().startswith(b"[COORDINATOR] Starting")
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
    assert all(harness.document(number).exists() for number in (42, 43, 44))
    assert len(server.answered()) == 6
    assert ">>> Executing: N4_finalize" in (harness.home / "logs/parallel/latest/LLD-44.log").read_text()


@pytest.mark.parametrize("command", [("lld-workflow", "--all", "--dry-run"), ("agentos", "--help")])
def test_a_reader_that_leaves_early_as_head_does_is_no_error(
    harness: RunHarness, command: tuple[str, ...]
) -> None:
    harness.issues(*range(1, 20))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [PROGRAMS / command[0], *command[1:]],
            stdout=pipe,
            stderr=subprocess.PIPE,
            cwd=harness.project,
            env=harness.environment(),
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_stalled_reader_never_blocks_the_work(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    harness.server()
    with full_pipe() as stalled:
        assert harness.start("--all", "--parallel", 2, stdout=stalled).wait().code == 0
    assert all(harness.document(number).exists() for number in (42, 43, 44))
    assert harness.summary()["exit_code"] == 0
    assert title_of(44) in harness.document(44).read_text()


def test_a_run_works_with_closed_standard_streams(harness: RunHarness) -> None:
    harness.issue(42)
    harness.server()
    script = 'exec "$0" "$@" <&- 2>&-'
    found = subprocess.run(
        ["/bin/sh", "-c", script, str(PROGRAMS / "lld-workflow"), "--all"],
        stdout=subprocess.PIPE,
        cwd=harness.project,
        env=harness.environment(),
        timeout=30,
        check=False,
    )
    assert found.returncode == 0 and b"Execution complete:" in found.stdout
    assert harness.document(42).exists()
