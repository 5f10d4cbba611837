"""The coordinator's end of the template process: starts it, speaks with it, ends it.

Little is loaded here, so that the template can begin with its own imports before the coordinator does.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST = 65536


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How the fork server prepares workers and what each one runs.

    entry: "module:function" that a worker calls with its channel's socket.
    preload: modules imported before the first fork.
    environment: the only variables that the fork server and its workers see.
    inherited: descriptors kept open in the fork server and in every worker.
    lazy: packages whose code runs at the first attribute access instead of at import.
    warm_up: "module:function" called once, after the preload and before the first fork.
    """

    entry: str
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    inherited: tuple[int, ...] = ()
    lazy: tuple[str, ...] = ()
    warm_up: str = ""


class TemplateProcess:
    """It finds nothing around it but what the recipe names, and lives no longer than this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = _start(spec, theirs)
            except OSError:
                self._control.close()
                raise

    def fileno(self) -> int:
        return self._control.fileno()

    def send(self, message: Mapping[str, str], descriptors: tuple[int, ...] = ()) -> None:
        """One that is gone misses it; its end is told in its own time."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    def receive(self) -> dict[str, object] | None:
        """What it has to say; None when it is gone."""
        with contextlib.suppress(ConnectionError):
            if message := self._control.recv(LARGEST):
                news: dict[str, object] = json.loads(message)
                return news
        return None

    def disconnect(self) -> None:
        """It ends when it notices, with all its children."""
        self._control.close()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self, patience: float = 0.0) -> None:
        """It has ended when this returns; so long it may take to end by itself."""
        self.disconnect()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()


def _start(spec: WorkerSpec, control: socket.socket) -> subprocess.Popen[bytes]:
    modules = [",".join(names) for names in (spec.preload, spec.lazy)]
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "agentos.engines.template"),
            *(str(control.fileno()), str(os.getpid()), spec.entry, *modules, spec.warm_up),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[control.fileno()],
        env=dict(spec.environment),
        start_new_session=True,
    )
