"""Puts something else in the place of every file and folder that a project and its home have, one at a time.

Every command must then end in bounded time and memory, with an exit code of the table and without a traceback.
"""

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.chaos.killing import Sweep
from tests.scenarios.harness import RunHarness

KINDS = ("fifo", "device", "folder", "loop", "file", "garbage")
COMMANDS = (
    ("lld-workflow", "--all", "--offline"),
    ("issue-workflow", "--all", "--offline"),
    ("agentos", "exec", "one", "--no-gateway", "--", "true"),
    ("agentos", "status"),
    ("agentos", "runs"),
    ("agentos", "logs"),
    ("agentos", "report"),
    ("agentos", "review"),
    ("agentos", "keys"),
    ("agentos", "doctor", "--offline"),
    ("agentos", "config", "show", "--origin"),
    ("agentos", "runs", "prune", "--keep", "1"),
)
LIMITS = ("prlimit", f"--as={3 << 30}", "--") if shutil.which("prlimit") else ()
SLOWEST = 25.0  # seconds
EXIT_CODES = (0, 1, 2, 3, 4, 5, 75)
FORBIDDEN = ("Traceback (most", "This is unexpected", "out of memory", "MemoryError")


def put(path: Path, kind: str) -> None:
    """Replaces whatever is at the path."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "file":
            path.touch(mode=0o600)
        case "garbage":
            path.touch(mode=0o600)
            path.write_bytes(b"\0\xff\xfe{[" * 999)


def sweep_replaced_files(root: Path, rng: random.Random, cases: int | None = None) -> Sweep:
    """All places and kinds in random order, or that many of them; every case runs three commands."""
    with Sweep("replaced files").timed() as sweep, RunHarness.open(root / "template") as template:
        _fill(template)
        places = _places(template)
        chosen = [(place, kind) for place in places for kind in KINDS]
        rng.shuffle(chosen)
        for number, (place, kind) in enumerate(chosen[:cases]):
            commands = rng.sample(COMMANDS, 3)
            sweep.violations += _try(root / "case", template, place, kind, commands)
            sweep.killed(number)
    return sweep


def _fill(harness: RunHarness) -> None:
    """A project and a home with everything that runs leave: documents, a parked item, records of programs, settings."""
    harness.issue(1)
    harness.issue(2, "hopeless")
    harness.brief("idea.md", 3)
    for command in (
        ("lld-workflow", "1", "2", "--offline"),
        ("issue-workflow", "--all", "--offline", "--review", "draft"),
        ("agentos", "exec", "one", "two", "--no-gateway", "--", "true"),
        ("agentos", "keys", "list"),
    ):
        done = harness.run(*command[1:], program=command[0])
        assert done.code == 0, done.out + done.err
    for name, text in (("config.toml", "retries = 1\n"), ("credentials.toml", ""), ("trusted.json", "{}")):
        path = harness.home / name
        path.touch(mode=0o600)
        path.write_text(text)
    quota = harness.home / "quota"
    quota.mkdir(mode=0o700, exist_ok=True)
    for name in ("notes.jsonl", "pool.lock"):
        (quota / name).touch(mode=0o600)
    (harness.project / "agentos.toml").write_text("retries = 1\n")
    prompts = harness.project / ".agentos/prompts"
    prompts.mkdir(parents=True)
    (prompts / "lld-draft.md").write_text("Write it.\n")
    harness.issue(4)


def _places(harness: RunHarness) -> list[str]:
    found = [
        str(path.relative_to(harness.root))
        for folder in (harness.project, harness.home)
        for path in [folder, *sorted(folder.rglob("*"))]
    ]
    # A project that is no folder is another command line, not another file.
    return [place for place in found if place != "project"]


def _try(
    root: Path, template: RunHarness, place: str, kind: str, commands: Sequence[tuple[str, ...]]
) -> Iterator[str]:
    with RunHarness.open(root) as harness:
        for name in ("project", "home"):
            shutil.rmtree(root / name, ignore_errors=True)
            shutil.copytree(template.root / name, root / name, symlinks=True)
        put(root / place, kind)
        for command in commands:
            yield from (f"{place} as {kind}: {problem}" for problem in _run(harness, command))
    shutil.rmtree(root)


def _run(harness: RunHarness, command: tuple[str, ...]) -> Iterator[str]:
    began = time.monotonic()
    running = harness.start(*command[1:], program=command[0], stdout=None, before=LIMITS)
    line = " ".join(command)
    try:
        done = running.wait(SLOWEST)
    except subprocess.TimeoutExpired:
        running.process.kill()
        yield f"{line} did not end within {SLOWEST:.0f} s"
        return
    output = done.out + done.err
    if done.code not in EXIT_CODES:
        yield f"{line} exited with {done.code}"
    for text in FORBIDDEN:
        if text in output:
            shown = [one for one in output.splitlines() if one.strip()]
            yield f"{line} after {time.monotonic() - began:.1f} s: {text}: {' / '.join(shown[-3:])[:400]}"
