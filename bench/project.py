"""A temporary project with an offline model server, for benchmarks."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ISSUE = """# Feature {number}

Readers ask for feature {number} of the list.

## Requirements

- The page `/feature/{number}` must answer within 200 ms.
- A reader must be able to switch feature {number} off.

## Acceptance criteria

- `GET /feature/{number}` answers 200 within 200 ms.
- After switching it off, `GET /feature/{number}` answers 404.

## When it fails

- If the store is down, the page says so and answers 503.
"""


@dataclass(frozen=True, slots=True)
class BenchProject:
    project: Path
    environment: dict[str, str]

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentos", "run", "lld", *args, "--repo", str(self.project)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def summary(self) -> dict[str, object]:
        newest = Path(self.environment["AGENTOS_HOME"]) / "logs" / "parallel" / "latest" / "summary.json"
        record: dict[str, object] = json.loads(newest.read_text())
        return record


@contextlib.contextmanager
def bench_project(items: int, server: list[str]) -> Iterator[BenchProject]:
    """A project with `items` valid issues, and keys for an offline server with these flags."""
    with tempfile.TemporaryDirectory() as folder, _server(server) as ready:
        project = Path(folder) / "project"
        (project / "issues").mkdir(parents=True)
        for number in range(1, items + 1):
            (project / "issues" / f"{number:03}.md").write_text(ISSUE.format(number=number))
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "AGENTOS_HOME": f"{folder}/home"}
        for number, key in enumerate(ready["keys"], 1):
            environment[f"GEMINI_API_KEY_{number}"] = key
            environment[f"GEMINI_BASE_URL_{number}"] = ready["url"]
        yield BenchProject(project, environment)


@contextlib.contextmanager
def _server(flags: list[str]) -> Iterator[dict[str, str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "agentos", "offline-server", "--die-with-parent", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout and process.stdin
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(5)
        process.stdout.close()
