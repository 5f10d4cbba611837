"""Runs the marked examples of a page: `python -m tests.audits.examples README.md`.

A block that is marked `console run` is typed, line by line, into one shell that stands in a project of its
own, with a home of its own and no key. Each command must end as the page says (`exit=130`; 0 if nothing is
said; `interrupt=2/10` presses Ctrl-C when that text has come, `_` for a space), and each line that the page shows must be among
those that came, with other numbers if need be. A line of dots stands for any lines.
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

PATIENCE = 90.0
STARTS_EMPTY = {"docs/tutorial.md"}
SHAPES = (
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
    """One command of a page, and how it went."""

    command: str
    expected: int
    code: int
    shown: tuple[str, ...]
    output: tuple[str, ...]

    def objections(self) -> list[str]:
        came = {_shape(line) for line in self.output}
        missing = [line for line in self.shown if not _dots(line) and _shape(line) not in came]
        ended = [] if self.code == self.expected else [f"ended with {self.code}, expected {self.expected}"]
        if not ended and not missing:
            return []
        told = [f"not among its output: {line}" for line in missing]
        return [f"$ {self.command}", *ended, *told, "its output:", *self.output[-40:]]


@dataclass(frozen=True, slots=True)
class Typed:
    code: int
    output: tuple[str, ...]


def marked(name: str) -> list[Block]:
    return [block for block in pages()[name].blocks if block.language == "console" and "run" in block.marks]


def run_page(name: str) -> list[str]:
    """What does not go as the page says; empty when everything does."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "shop"
        project.mkdir()
        if name not in STARTS_EMPTY:
            _fill(project)
        for block in marked(name):
            for step in _run_block(block, project, Path(folder)):
                if found := step.objections():
                    return found
    return []


def _fill(project: Path) -> None:
    with resources.as_file(resources.files("agentos.demo_backlog")) as backlog:
        for part in ("issues", "ideas"):
            shutil.copytree(backlog / part, project / part)


def _run_block(block: Block, project: Path, folder: Path) -> list[Step]:
    expected, steps = int(block.mark("exit") or 0), []
    for number, command in enumerate(block.commands(), 1):
        last = number == len(block.commands())
        cue = (block.mark("interrupt") or "").replace("_", " ") if last else ""
        done = _type(command.text, project, folder, cue)
        steps.append(Step(command.text, expected if last else 0, done.code, command.shown, done.output))
    return steps


def _type(text: str, project: Path, folder: Path, cue: str) -> Typed:
    """What was changed by `cd` and `export` before holds for what is typed next."""
    state = folder / "shell-state"
    script = f"cd {shlex.quote(str(project))}; [ -f {state} ] && . {state}\n{text}\n"
    script += f'code=$?; {{ export -p; echo "cd $(printf %q "$PWD")"; }} > {state}; exit $code'
    with open(folder / "output", "w+b") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            env=_surroundings(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = _wait(shell, folder / "output", cue)
    return Typed(code, tuple((folder / "output").read_text("utf-8", "replace").splitlines()))


def _wait(shell: subprocess.Popen[bytes], output: Path, cue: str) -> int:
    """Until it has ended; on its cue it gets what a terminal sends for Ctrl-C."""
    ends = time.monotonic() + PATIENCE
    while shell.poll() is None:
        if cue and cue in output.read_text("utf-8", "replace"):
            os.killpg(shell.pid, signal.SIGINT)
            cue = ""
        if time.monotonic() > ends:
            os.killpg(shell.pid, signal.SIGKILL)
        time.sleep(0.02)
    return shell.returncode


def _surroundings(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **kept}


def _shape(line: str) -> str:
    for pattern, word in SHAPES:
        line = pattern.sub(word, line)
    return line.strip()


def _dots(line: str) -> bool:
    return line.strip() in ("", "...", "…")


def main() -> int:
    failures = 0
    for name in sys.argv[1:] or [name for name in pages() if marked(name)]:
        found = run_page(name)
        failures += bool(found)
        print(f"{name}: {'as it says' if not found else 'FAIL'}")
        print("".join(f"  {line}\n" for line in found), end="")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
