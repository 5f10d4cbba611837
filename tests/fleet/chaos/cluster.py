"""The fleet of a campaign: real servers, two worker hosts behind proxies, a model server that logs every call."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.chaos import observer
from tests.fleet.chaos.proxy import PartitionProxy
from tests.fleet.harness import PROGRAMS, Fleet, are_gone, processes_below
from tests.fleet.servers import MissingServer, PostgresServer, TemporalServer, running_servers, wait_for

KEYS = tuple(f"chaos-key-{letter}-3f9a6c" for letter in "abcd")
CONCURRENCY = 2
BURST = 2  # calls
MARGIN = 1.15
"""How much faster the model server fills a key's bucket than the gateway is told: the time that a call is on its way to the
server varies by more on a busy machine than a rate can allow for."""
RESTART_PAUSE = 2.0  # seconds before a worker that could not start is started again


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast the models answer; a campaign is to be bound by these waits, not by the processor."""

    rpm: int = 15  # of each key, refilled evenly, so that no time of the campaign is without calls
    latency: str = "0.3,1.5"  # seconds; below the two that a drained worker waits for a call


@dataclass
class WorkerHost:
    """One machine: a home of its own, and a network that can be cut. Its supervisor starts a worker that has exited."""

    number: int
    fleet: Fleet
    proxy: PartitionProxy
    parallel: int
    process: subprocess.Popen[bytes] | None = None
    leftovers: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.fleet.folder / f"host-{self.number}.log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def environment(self) -> dict[str, str]:
        postgres, temporal, gateway = self.proxy.ports
        found = self.fleet.environment(f"host-{self.number}")
        server = self.fleet.postgres
        return found | {
            "AGENTOS_POSTGRES": found["AGENTOS_POSTGRES"].replace(f":{server.port}/", f":{postgres}/"),
            "TEMPORAL_ADDRESS": f"127.0.0.1:{temporal}",
            "AGENTOS_GATEWAY": f"http://127.0.0.1:{gateway}",
        }

    def start(self, is_over: Mapping[str, bool] | None = None, timeout: float = 240) -> None:
        """As a supervisor does: again, while a service that it needs is away."""
        deadline = time.monotonic() + timeout
        while True:
            before = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as output:
                self.process = subprocess.Popen(
                    [PROGRAMS / "agentos", "worker", "--parallel", str(self.parallel)],
                    env=self.environment(),
                    cwd=self.fleet.folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            process = self.process

            def is_settled(process: subprocess.Popen[bytes] = process, before: int = before) -> bool:
                return process.poll() is not None or b"items at a time" in self.log.read_bytes()[before:]

            wait_for(is_settled, "the worker", 60)
            if process.poll() is None:
                return
            assert process.returncode == 3 and time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(RESTART_PAUSE)

    def kill(self) -> None:
        """kill -9; every process below has to be gone with it."""
        below = processes_below(self.pid)
        self._end(signal.SIGKILL)
        if not are_gone(below):
            self.leftovers.append(f"processes of host {self.number} outlived kill -9")

    def drain(self) -> float:
        """SIGTERM; returns the seconds until it has exited."""
        began = time.monotonic()
        below = processes_below(self.pid)
        code = self._end(signal.SIGTERM)
        if code != 143 or not are_gone(below):
            self.leftovers.append(f"host {self.number} exited with {code} after SIGTERM")
        return time.monotonic() - began

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        pids = [self.pid, *processes_below(self.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(10)


@dataclass
class Cluster:
    """Everything that runs, with the log of the model server."""

    fleet: Fleet
    postgres: PostgresServer
    temporal: TemporalServer
    hosts: list[WorkerHost]
    calls_file: Path

    def calls(self) -> list[dict[str, object]]:
        """Every call that has ended, as the model server recorded it."""
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]

    def restart_gateway(self) -> None:
        self.fleet.gateway.stop(signal.SIGKILL)
        self.fleet.gateway.start(self.fleet.environment("gateway"))

    def restart_temporal(self) -> None:
        self.temporal.stop(signal.SIGKILL)
        self.temporal.start()


@contextlib.contextmanager
def running_cluster(
    folder: Path, rates: Rates, parallel: int, variables: Mapping[str, str]
) -> Iterator[Cluster]:
    """`variables` are added to the environment of every command, such as a planted bug."""
    if not (PROGRAMS / "agentos").exists():
        raise MissingServer("agentos is not installed beside this Python")
    with contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        postgres, temporal = stack.enter_context(running_servers())
        calls_file = folder / "calls.jsonl"
        url = stack.enter_context(_model_server(folder, calls_file, rates))
        _write_credentials(folder / "gateway", url, rates)
        fleet = stack.enter_context(
            Fleet(folder, postgres, temporal, postgres.admin_url, variables=dict(variables))
        )
        created = fleet.run("agentos", "fleet", "init")
        assert created.returncode == 0, created.stderr
        observer.install(postgres.admin_url)
        hosts = []
        for number in (1, 2):
            ports = (postgres.port, temporal.port, fleet.gateway.port)
            host = WorkerHost(number, fleet, stack.enter_context(PartitionProxy(ports)), parallel)
            stack.callback(host.close)
            host.start()
            hosts.append(host)
        yield Cluster(fleet, postgres, temporal, hosts, calls_file)


@contextlib.contextmanager
def _model_server(folder: Path, calls_file: Path, rates: Rates) -> Iterator[str]:
    keys = folder / "server-keys"
    keys.write_text("".join(f"key-{number}={key}\n" for number, key in enumerate(KEYS, 1)))
    limits = (
        "--rpm",
        str(round(rates.rpm * MARGIN)),
        "--window",
        "bucket",
        "--burst",
        str(BURST),
        "--count-refused",
    )
    process = subprocess.Popen(
        [
            *(PROGRAMS / "agentos", "offline-server", "--die-with-parent", "--keys-file", keys),
            *("--latency", rates.latency, "--ledger", calls_file, *limits),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    assert process.stdin and process.stdout
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def _write_credentials(home: Path, url: str, rates: Rates) -> None:
    home.mkdir(mode=0o700)
    tables = (
        f'[[credential]]\nname = "key-{number}"\nprovider = "gemini"\nkey = "{key}"\nbase_url = "{url}"\n'
        f"concurrency = {CONCURRENCY}\nrpm = {rates.rpm}\nburst = {BURST}\n"
        for number, key in enumerate(KEYS, 1)
    )
    file = home / "credentials.toml"
    file.write_text("\n".join(tables))
    file.chmod(0o600)
