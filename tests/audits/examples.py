"""Runs the examples of a page: `python -m tests.audits.examples README.md`.

The commands of every block marked `console run` are typed into one shell, in a project with a home of its own and
no keys. A command must end with the exit code of its block (`exit=130`, otherwise 0), and every line shown below it
must appear in its output, with different numbers allowed. A line of three dots stands for any lines. The mark
`interrupt=TEXT` presses Ctrl-C when the text appears (`_` for a space).
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .pages import Block, pages

TIMEOUT = 90.0  # seconds for one command
STARTS_EMPTY = {"docs/tutorial.md"}
WITH_CODE = {"docs/how-to/code-context.md"}
PLACEHOLDERS = (
    (re.compile(r"running: [^|]*"), "running: "),
    (re.compile(r"(resumes|Interrupted) at \w+"), r"\1 at NODE"),
    (re.compile(r"\[[=> ]{10}\]"), "[bar]"),
    (re.compile(r"\b\d{8}T\d{6}Z(-\d+)?"), "RUN"),
    (re.compile(r"(\d+h )?(\d+m )?\d+(\.\d+)?s\b"), "#s"),
    (re.compile(r"\d[\d.,:]*k?"), "#"),
    (re.compile(r"# (call|item|key|review|round|refusal|worker|slot)s?\b"), r"# \1"),
    (re.compile(r"/\S*/"), "PATH/"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page and its result."""

    command: str
    expected: int
    code: int
    shown: tuple[str, ...]
    output: tuple[str, ...]

    def problems(self) -> list[str]:
        actual = {_normalize(line) for line in self.output}
        missing = [
            line for line in self.shown if not _is_placeholder(line) and _normalize(line) not in actual
        ]
        exit_code = [] if self.code == self.expected else [f"exit code {self.code}, expected {self.expected}"]
        if not exit_code and not missing:
            return []
        absent = [f"not in the output: {line}" for line in missing]
        return [f"$ {self.command}", *exit_code, *absent, "output:", *self.output[-40:]]


@dataclass(frozen=True, slots=True)
class ShellResult:
    code: int
    output: tuple[str, ...]


def marked(name: str) -> list[Block]:
    return [block for block in pages()[name].blocks if block.language == "console" and "run" in block.marks]


def run_page(name: str) -> list[str]:
    """The problems with the first example that fails; empty when all of them work."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "shop"
        project.mkdir()
        if name not in STARTS_EMPTY:
            _fill(project, ("issues", "ideas", *(["codebase"] if name in WITH_CODE else [])))
        for block in marked(name):
            for step in _run_block(block, project, Path(folder)):
                if found := step.problems():
                    return found
    return []


def _fill(project: Path, parts: tuple[str, ...]) -> None:
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for part in parts:
            target = project if part == "codebase" else project / part
            shutil.copytree(backlog / part, target, dirs_exist_ok=True)


def _run_block(block: Block, project: Path, folder: Path) -> list[Step]:
    expected, steps = int(block.mark("exit") or 0), []
    for number, command in enumerate(block.commands(), 1):
        last = number == len(block.commands())
        cue = (block.mark("interrupt") or "").replace("_", " ") if last else ""
        done = _run_command(command.text, project, folder, cue)
        steps.append(Step(command.text, expected if last else 0, done.code, command.shown, done.output))
    return steps


def _run_command(text: str, project: Path, folder: Path, cue: str) -> ShellResult:
    """The effects of `cd` and `export` are carried over to the next command."""
    state = folder / "shell-state"
    script = f"cd {shlex.quote(str(project))}; [ -f {state} ] && . {state}\n{text}\n"
    script += f'code=$?; {{ export -p; echo "cd $(printf %q "$PWD")"; }} > {state}; exit $code'
    with open(folder / "output", "w+b") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(shell, folder / "output", cue)
    return ShellResult(code, tuple((folder / "output").read_text("utf-8", "replace").splitlines()))


def _wait(shell: subprocess.Popen[bytes], output: Path, cue: str) -> int:
    """Waits for the exit code; sends SIGINT to the process group when the cue appears."""
    deadline = time.monotonic() + TIMEOUT
    while shell.poll() is None:
        if cue and cue in output.read_text("utf-8", "replace"):
            os.killpg(shell.pid, signal.SIGINT)
            cue = ""
        if time.monotonic() > deadline:
            os.killpg(shell.pid, signal.SIGKILL)
        time.sleep(0.02)
    return shell.returncode


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **inherited}


def _normalize(line: str) -> str:
    for pattern, replacement in PLACEHOLDERS:
        line = pattern.sub(replacement, line)
    return line.strip()


def _is_placeholder(line: str) -> bool:
    return line.strip() in ("", "...", "…")


def main() -> int:
    failures = 0
    for name in sys.argv[1:] or [name for name in pages() if marked(name)]:
        found = run_page(name)
        failures += bool(found)
        print(f"{name}: {'ok' if not found else 'FAIL'}")
        print("".join(f"  {line}\n" for line in found), end="")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
