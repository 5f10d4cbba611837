"""A fleet of real commands on loopback: each worker has a home of its own, the models are the offline server's."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentos.core.quota.credentials import Credential
from agentos.offline.child import OfflineServer
from tests.fleet.servers import GatewayServer, PostgresServer, TemporalServer, wait_for

PROGRAMS = Path(sys.executable).parent
ISSUE = "# Thing {n}\n\nThe list of articles is sorted by date.\n\n## Requirements\n\n- sort by date\n- keep it stable\n"


@dataclass
class Fleet:
    """Start workers with `worker`, run commands in the project with `run`. Everything ends with the test."""

    folder: Path
    postgres: PostgresServer
    temporal: TemporalServer
    database: str
    gateway_arguments: tuple[str, ...] = ()
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    others: list[subprocess.Popen[str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """Added to the environment of every command."""

    def __enter__(self) -> "Fleet":
        self.name = f"p{uuid.uuid4().hex[:10]}"
        self.project = self.folder / "project"
        (self.project / "issues").mkdir(parents=True)
        (self.project / "agentos.toml").write_text(f'[fleet]\nproject = "{self.name}"\n')
        home = self.folder / "gateway"
        home.mkdir(mode=0o700, exist_ok=True)
        self.gateway = GatewayServer(home, self.gateway_arguments)
        self.gateway.start(self.environment("gateway"))
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            _end(worker)
        for other in self.others:
            _end(other)
            if other.stdout:
                other.stdout.close()
        self.gateway.stop()

    def environment(self, home: str) -> dict[str, str]:
        found = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "AGENTOS_HOME": str(self.folder / home),
            "AGENTOS_POSTGRES": self.database,
            "TEMPORAL_ADDRESS": self.temporal.address,
            **self.variables,
        }
        if hasattr(self, "gateway"):
            found |= {"AGENTOS_GATEWAY": self.gateway.url, "AGENTOS_GATEWAY_TOKEN": self.gateway.token}
        return found

    def serve_models(self, models: OfflineServer) -> list[Credential]:
        """Restarts the gateway with this server's keys as a provider's, whose models have prices."""
        keys = models.credentials()
        self.gateway.stop()
        for number, key in enumerate(keys, 1):
            self.gateway.variables[f"GEMINI_API_KEY_{number}"] = key.secret.reveal()
            self.gateway.variables[f"GEMINI_BASE_URL_{number}"] = key.base_url or ""
        self.gateway.start(self.environment("gateway"))
        return keys

    def issues(self, *numbers: int) -> None:
        for number in numbers:
            (self.project / f"issues/{number}-thing.md").write_text(ISSUE.format(n=number))

    def worker(self, parallel: int = 3, *flags: str) -> subprocess.Popen[bytes]:
        number = len(self.workers) + 1
        log = self.log(number)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PROGRAMS / "agentos", "worker", "--parallel", str(parallel), *flags],
                env=self.environment(f"worker-{number}"),
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.workers.append(process)
        self.wait_until(
            lambda: b"items at a time" in log.read_bytes() or process.poll() is not None, "the worker"
        )
        assert process.poll() is None, log.read_text()
        return process

    def log(self, worker: int) -> Path:
        return self.folder / f"worker-{worker}.log"

    def run(
        self,
        *command: str,
        home: str = "home",
        timeout: float = 90,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAMS / command[0], *command[1:]],
            env={**self.environment(home), **(variables or {})},
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *command: str, home: str = "home") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [PROGRAMS / command[0], *command[1:]],
            env=self.environment(home),
            cwd=self.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.others.append(process)
        return process

    def documents(self) -> list[str]:
        return sorted(path.name for path in (self.project / "docs/lld").rglob("LLD-*.md"))

    def calls(self) -> int:
        """Model calls that the gateway has served."""
        return (self.folder / "gateway" / "gateway.log").read_text().count(", 200 with ")

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout: float = 60) -> None:
        wait_for(is_so, what, timeout)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(10)


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(10)


def processes_below(pid: int) -> list[int]:
    """The pids of all descendants, now."""
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *processes_below(int(child))]
    return found


def are_gone(pids: list[int], timeout: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout
    while any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
