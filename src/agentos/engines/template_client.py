"""The coordinator's end of the fork server: starts it, exchanges messages with it, stops it.

This module imports little, so that the fork server starts before the rest of the coordinator is loaded.
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

MAX_MESSAGE = 65536  # bytes


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


class ForkServerProcess:
    """A running fork server. It sees only the environment of its spec and dies with this process."""

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
        """Best effort: a fork server that has died misses it, and `receive` reports that."""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    def receive(self) -> dict[str, object] | None:
        """The next message; None if the fork server is gone."""
        with contextlib.suppress(ConnectionError):
            if message := self._control.recv(MAX_MESSAGE):
                content: dict[str, object] = json.loads(message)
                return content
        return None

    def disconnect(self) -> None:
        """Close the socket; the fork server then exits with all its workers."""
        self._control.close()

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self, grace: float = 0.0) -> None:
        """Disconnect and wait for the exit; kill the fork server after `grace` seconds."""
        self.disconnect()
        try:
            self._process.wait(grace)
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
