"""The containers of `deploy/kubernetes` as plain processes: their arguments, variables and probes, without containers."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fleet.harness import Fleet
from tests.fleet.servers import free_port, wait_for
from tests.gateway.shared import Certificates
from tests.packaging.deployment import containers, manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
AGENTOS = Path(sys.executable).parent / "agentos"


class Pod:
    """A deployment's container as a process, with a home of its own; other addresses and paths stand for the container's."""

    def __init__(self, name: str, home: Path, certificates: Certificates) -> None:
        self._name = name
        self._home = home
        self.listen, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._replaced = {
            "0.0.0.0:8484": self.listen,
            "0.0.0.0:9484": self.metrics,
            "/tls/tls.crt": str(certificates.certificate),
            "/tls/tls.key": str(certificates.key),
            "/tls/ca.crt": str(certificates.authority),
            "/var/lib/agentos/home": str(home),
        }

    def environment(self, known: Mapping[str, str]) -> dict[str, str]:
        """The variables of the manifest; `known` has those that a secret or another service provides."""
        found = next(one for one in containers() if one.where.startswith(f"Deployment {self._name}"))
        values = {name: known.get(name, self._of_machine(value)) for name, value in found.variables.items()}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent"} | values

    @contextlib.contextmanager
    def running(self, known: Mapping[str, str], *more: str) -> "Iterator[subprocess.Popen[bytes]]":
        container = self._container()
        arguments = [self._of_machine(word) for word in container["args"]]
        with self._home.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [AGENTOS, *arguments, *more], env=self.environment(known), cwd="/", stdout=log, stderr=log
            )
        try:
            path = container["readinessProbe"]["httpGet"]["path"]
            wait_for(lambda: self._is_ready(path) or process.poll() is not None, self._name)
            assert process.poll() is None, self._home.with_suffix(".log").read_text()
            yield process
        finally:
            process.kill()
            process.wait(10)

    def _container(self) -> "dict[str, dict[str, dict[str, str]]]":
        found: dict[str, dict[str, dict[str, str]]] = manifest("Deployment", self._name)["spec"]["template"][
            "spec"
        ]["containers"][0]
        return found

    def _of_machine(self, text: str) -> str:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        return text

    def _is_ready(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:  # not listening yet, or 503
            return False


def test_gateway_and_worker_run_with_the_arguments_and_variables_of_the_manifests(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.issues(1)
    certificates = Certificates.create(tmp_path / "tls")
    gateway = Pod("agentos-gateway", tmp_path / "gateway-pod", certificates)
    worker = Pod("agentos-worker", tmp_path / "worker-pod", certificates)
    keys = {"GEMINI_API_KEY_1": "not-used-offline"}
    with gateway.running(keys, "--offline"):
        command = [str(AGENTOS), "gateway", "token", "workers"]
        token = subprocess.run(
            command, env=gateway.environment(keys), check=True, capture_output=True, text=True
        )
        known = {
            "AGENTOS_POSTGRES": fleet.database,
            "TEMPORAL_ADDRESS": fleet.temporal.address,
            "AGENTOS_GATEWAY": f"https://{gateway.listen}",
            "AGENTOS_GATEWAY_TOKEN": token.stdout.strip(),
        }
        with worker.running(known) as process:
            done = fleet.run("lld-workflow", "--all", "--fleet")
            assert done.returncode == 0, done.stdout + done.stderr
            assert fleet.documents() == ["LLD-001.md"]
            process.send_signal(signal.SIGTERM)
            grace = manifest("Deployment", "agentos-worker")["spec"]["template"]["spec"]
            assert process.wait(grace["terminationGracePeriodSeconds"]) == 143
