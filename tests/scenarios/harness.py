"""Test harness: a temporary project and home, an offline model server, and the real commands run as processes."""

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

PROGRAMS = Path(sys.executable).parent
# Prefix for commands that must die with the test process, even when that is killed.
DIE_WITH_PARENT = (found, "--pdeathsig", "KILL") if (found := shutil.which("setpriv")) else ()
# `make test-portable` runs every command of the tests without the calls that only Linux has.
PORTABLE_CALLS = {name: os.environ[name] for name in ("AGENTOS_PORTABLE",) if name in os.environ}
KEYS = ("canary-key-alpha-9f31", "canary-key-beta-77c2", "canary-key-gamma-05de", "canary-key-delta-e410")
_GOOD = """
People need item {number} every day and have no way to do it.

## Requirements

- The page of item {number} shows 3 rows, newest first.
- `GET /things/{number}` answers within 200 ms.

## Acceptance criteria

- With 5 rows stored, the page shows the newest 3.
- `GET /things/{number}` answers within 200 ms in the benchmark.
"""
_FAILURES = """
## When it fails

- If the store is unreachable, the page says so and shows no row.
"""
_HOPELESS = """
It should all be a bit nicer.

## What we want

- A modern look
- A friendly tone
"""
TEXTS = {"good": _GOOD + _FAILURES, "weak": _GOOD, "hopeless": _HOPELESS}
CALLS = {"good": 2, "weak": 4, "hopeless": 4}
Json = dict[str, Any]


def title_of(number: int) -> str:
    """The item's title, by which the model server names it in its log."""
    return f"Thing {number} can be used"


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> float:
    """Poll until the condition holds; return the seconds that took."""
    began = time.monotonic()
    while not condition():
        passed = time.monotonic() - began
        assert passed < seconds, f"not within {seconds} s: {getattr(condition, '__name__', condition)}"
        time.sleep(0.01)
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """Exit code and output of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def lines_of(self, source: str) -> list[str]:
        """The lines of one item or of the COORDINATOR, without their prefix."""
        prefix = f"[{source}] "
        return [line.removeprefix(prefix) for line in self.lines if line.startswith(prefix)]


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process, told apart by its start time from a later one with the same pid."""

    pid: int
    start_time: str

    @property
    def alive(self) -> bool:
        state = _stat(self.pid)
        return state is not None and state[19] == self.start_time and state[0] != "Z"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat that follow the command name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def descendants(root: int) -> list[ProcessHandle]:
    """All live descendants of a process, without itself."""
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    parents = {pid: int(found[1]) for pid, found in stats.items() if found}
    below, fresh = set[int](), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh and pid not in below}
        below |= fresh
    return [
        ProcessHandle(pid, found[19]) for pid in sorted(below) if (found := stats[pid]) and found[0] != "Z"
    ]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A command that is still running; its output goes to files, so that it never blocks on the test."""

    process: subprocess.Popen[bytes]
    out_path: Path
    err_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_path.read_text("utf-8", "replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text("utf-8", "replace")

    def wait_for(self, text: str, seconds: float = 30.0) -> float:
        """Wait until the text is in the standard output; fail at once if the command ends without it."""
        return wait_until(lambda: text in self.out or self._ended_without(text), seconds)

    def _ended_without(self, text: str) -> bool:
        if self.process.poll() is not None and text not in self.out:
            raise AssertionError(
                f"exited with {self.process.returncode} without printing {text!r}:\n{self.out}{self.err}"
            )
        return False

    def processes(self) -> list[ProcessHandle]:
        """Every process of the run except the coordinator."""
        return descendants(self.pid)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> CompletedCommand:
        code = self.process.wait(seconds)
        return CompletedCommand(code, self.out, self.err)


@dataclass(frozen=True, slots=True)
class ModelServer:
    """The running model server, with its log of calls."""

    url: str
    pid: int

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the server: calls in flight stay in flight for as long as the test needs."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def _get(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.url}{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: bytes = answer.read()
        return found

    def ledger(self) -> Json:
        found: Json = json.loads(self._get("GET", "/_offline/ledger"))
        return found

    def calls(self, number: int | None = None) -> list[Json]:
        """All calls, or those of one item."""
        found: list[Json] = self.ledger()["calls"]
        return [call for call in found if number is None or call["item"] == title_of(number)]

    def answered(self, number: int | None = None) -> list[Json]:
        return [call for call in self.calls(number) if call["status"] == 200 and call["ending"] == "complete"]

    def repeated_prompts(self) -> list[tuple[str, str]]:
        """Item and hash of each prompt that was answered more than once."""
        seen = [(call["item"], call["prompt_sha256"]) for call in self.answered()]
        return sorted({prompt for prompt in seen if seen.count(prompt) > 1})

    def add_fault(self, **fault: object) -> None:
        self._get("POST", "/_offline/faults", json.dumps(fault).encode())

    def clear_faults(self) -> None:
        self._get("DELETE", "/_offline/faults")


@dataclass(slots=True)
class RunHarness:
    """One project with its own AGENTOS_HOME; every process started here is ended when the harness closes."""

    root: Path
    _stack: contextlib.ExitStack
    keys: tuple[str, ...] = KEYS
    urls: list[str] = field(default_factory=list)
    extra_env: dict[str, str] = field(default_factory=dict)
    """Added to the environment of every command."""
    _count: int = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path) -> Iterator[Self]:
        with contextlib.ExitStack() as stack:
            harness = cls(root, stack)
            for folder in (harness.project / "issues", harness.user):
                folder.mkdir(parents=True)
            yield harness

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def user(self) -> Path:
        return self.root / "user"

    def issue(self, number: int, quality: str = "good", *labels: str) -> Path:
        front = f"---\nnumber: {number}\nlabels: [{', '.join(labels)}]\n---\n\n"
        path = self.project / "issues" / f"{number:03}-thing.md"
        path.write_text(f"{front}# {title_of(number)}\n{TEXTS[quality].format(number=number)}")
        return path

    def issues(self, *numbers: int, quality: str = "good") -> None:
        for number in numbers:
            self.issue(number, quality)

    def brief(self, name: str, number: int, quality: str = "good") -> Path:
        folder = self.project / "ideas" / "active"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text(f"# {title_of(number)}\n{TEXTS[quality].format(number=number)}")
        return path

    def document(self, number: int) -> Path:
        return self.project / "docs/lld/active" / f"LLD-{number:03}.md"

    def revision(self, number: int) -> Path:
        return self.project / "docs/lld/needs-revision" / f"LLD-{number:03}.md"

    def databases(self) -> list[str]:
        return sorted(path.name for path in self.home.glob("checkpoints/*/*"))

    def server(self, *flags: str, keys: tuple[str, ...] = KEYS, fault: Json | None = None) -> ModelServer:
        """Start the model server; commands started later get its address and these keys."""
        file = self.root / "server-keys"
        file.write_text("".join(f"key-{n}={key}\n" for n, key in enumerate(keys, 1)))
        options = [*flags, "--fault", json.dumps(fault)] if fault else list(flags)
        process = subprocess.Popen(
            [PROGRAMS / "agentos", "offline-server", "--die-with-parent", "--keys-file", file, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment(),
            start_new_session=True,
        )
        self._stack.callback(_end_server, process)
        assert process.stdout
        self.urls.append(json.loads(process.stdout.readline())["url"])
        self.keys = keys
        return ModelServer(self.urls[-1], process.pid)

    def environment(self, **more: str) -> dict[str, str]:
        """Built from scratch, so that nothing leaks in from the developer's environment."""
        return {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(self.user),
            "LANG": "C.UTF-8",
            "AGENTOS_HOME": str(self.home),
            **PORTABLE_CALLS,
            **self._credentials(),
            **self.extra_env,
            **more,
        }

    def _credentials(self) -> dict[str, str]:
        if not self.urls:
            return {}
        numbered = enumerate(self.keys, 1)
        return {
            name: value
            for number, key in numbered
            for name, value in (
                (f"GEMINI_API_KEY_{number}", key),
                (f"GEMINI_BASE_URL_{number}", self.urls[-1]),
            )
        }

    def start(
        self,
        *words: object,
        program: str = "lld-workflow",
        stdout: int | None = None,
        before: tuple[str, ...] = (),
        **env: str,
    ) -> RunningCommand:
        """Start a command in the project; `env` extends its environment, `before` is a command prefix."""
        self._count += 1
        out, err = (self.root / f"{kind}-{self._count}" for kind in ("stdout", "stderr"))
        with open(out, "wb") as out_file, open(err, "wb") as err_file:
            process = subprocess.Popen(
                [*DIE_WITH_PARENT, *before, str(PROGRAMS / program), *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out_file if stdout is None else stdout,
                stderr=err_file,
                cwd=self.project,
                env=self.environment(**env),
                start_new_session=True,
            )
        self._stack.callback(_end_tree, process)
        return RunningCommand(process, out, err)

    def run(self, *words: object, program: str = "lld-workflow", **env: str) -> CompletedCommand:
        return self.start(*words, program=program, stdout=None, before=(), **env).wait(60)

    def terminal(
        self,
        *words: object,
        program: str = "lld-workflow",
        size: tuple[int, int] = (100, 24),
        **env: str,
    ) -> "Terminal":
        """Start a command in the foreground of its own pseudo-terminal; `size` is (columns, lines)."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (size[1], size[0]))
        process = subprocess.Popen(
            [*DIE_WITH_PARENT, sys.executable, "-c", _FOREGROUND, str(PROGRAMS / program), *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.project,
            env=self.environment(**{"TERM": "xterm", **env}),
        )
        os.close(theirs)
        terminal = Terminal(process, ours)
        self._stack.callback(_end_tree, process)
        self._stack.callback(terminal.close)
        return terminal

    def runs(self) -> list[Path]:
        """The folders of all runs, oldest first."""
        found = self.home.glob("logs/parallel/[0-9]*Z*")
        return sorted(found, key=lambda path: (path.stat().st_ctime_ns, path.name))

    def journal(self, run: Path | None = None) -> list[Json]:
        folder = run or self.home / "logs/parallel/latest"
        with contextlib.suppress(FileNotFoundError):
            text = (folder / "events.jsonl").read_text("utf-8")
            return [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        return []

    def events(self, kind: str, run: Path | None = None) -> list[Json]:
        return [event for event in self.journal(run) if event["type"] == kind]

    def summary(self) -> Json:
        found: Json = json.loads((self.home / "logs/parallel/latest/summary.json").read_text("utf-8"))
        return found

    def worker(self, item: str) -> int:
        """The pid of the item's current worker."""
        wait_until(lambda: any(event["item"] == item for event in self.events("worker_started")))
        pids: list[int] = [event["pid"] for event in self.events("worker_started") if event["item"] == item]
        return pids[-1]


_MOVES = re.compile(r"\r?\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x1b]*\x1b\\|\a")
_FOREGROUND = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(slots=True)
class Terminal:
    """A command in a pseudo-terminal, with its keyboard."""

    process: subprocess.Popen[bytes]
    keyboard: int
    _screen: bytes = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def written(self) -> bytes:
        """Every byte written so far."""
        os.set_blocking(self.keyboard, False)
        with contextlib.suppress(OSError):
            while chunk := os.read(self.keyboard, 65536):
                self._screen += chunk
        return self._screen

    @property
    def screen(self) -> str:
        """The output as text, without cursor movements and colours."""
        text = self.written.decode("utf-8", "replace").replace("\r\n", "\n")
        return _MOVES.sub("", text)

    def press(self, keys: str) -> None:
        os.write(self.keyboard, keys.encode())

    def response_time(self, keys: str, expected: str) -> float:
        """Seconds from a key press to the expected output, measured without polling."""
        assert self.written is not None
        seen, began = b"", time.monotonic()
        self.press(keys)
        while expected.encode() not in seen and select.select([self.keyboard], [], [], 5)[0]:
            seen += os.read(self.keyboard, 65536)
        took = time.monotonic() - began
        self._screen += seen
        assert expected.encode() in seen, seen
        return took

    def modes(self) -> list[Any]:
        """The terminal attributes."""
        return termios.tcgetattr(self.keyboard)

    def wait_for(self, text: str, seconds: float = 30.0) -> float:
        return wait_until(lambda: text in self.screen, seconds)

    def ctrl_c(self, times: int = 1) -> None:
        for _ in range(times):
            os.write(self.keyboard, b"\x03")

    def processes(self) -> list[ProcessHandle]:
        return descendants(self.pid)

    def wait(self, seconds: float = 30.0) -> CompletedCommand:
        wait_until(lambda: [self.screen, self.process.poll() is not None][1], seconds)
        return CompletedCommand(self.process.wait(), self.screen, "")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.keyboard)


def _end_server(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        # The pid may have been reused, and orphans have been reparented to init.
        return
    left = descendants(process.pid)
    process.kill()
    process.wait()
    for mark in left:
        if mark.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(mark.pid, signal.SIGKILL)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """The write end of a full pipe that nobody reads."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"." * 4096)
        os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def snapshot(*folders: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, modification time and content of everything below the folders."""
    found = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")] if folder.exists() else []:
            state = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (state.st_mode, state.st_mtime_ns, content)
    return found
