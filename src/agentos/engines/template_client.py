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

CHUNK = 65536  # bytes


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """How the fork server prepares workers and what each one runs.

    entry: "module:function" that a worker calls with its channel's socket.
    preload: modules imported before the first fork.
    environment: the only variables that the fork server and its workers see.
    inherited: descriptors kept open in the fork server and in every worker.
    lazy: packages whose code runs at the first attribute access instead of at import.
    left_out: optional modules that are not found while the preload is imported.
    warm_up: "module:function" called once, after the preload and before the first fork.
    idle: "module:function" that returns an iterator; one step is done whenever the fork server has nothing to do.
    """

    entry: str
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    inherited: tuple[int, ...] = ()
    lazy: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    warm_up: str = ""
    idle: str = ""


class ForkServerProcess:
    """A running fork server. It sees only the environment of its spec and dies with this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._unread = b""
        self._control, control = socket.socketpair()
        # Its only purpose is to close when this process ends, which the reaper waits for.
        self._lifeline, lifeline = socket.socketpair()
        with control, lifeline:
            try:
                self._process = _start(spec, control, lifeline)
            except OSError:
                self.disconnect()
                raise

    def fileno(self) -> int:
        return self._control.fileno()

    def send(self, message: Mapping[str, str], descriptors: tuple[int, ...] = ()) -> None:
        """Best effort: a fork server that has died misses the message, and `receive` reports its death."""
        with contextlib.suppress(ConnectionError):
            text = json.dumps({**message, "descriptors": len(descriptors)})
            socket.send_fds(self._control, [f"{text}\n".encode()], descriptors)

    def receive(self) -> list[dict[str, object]] | None:
        """The messages that have arrived; None if the fork server is gone."""
        with contextlib.suppress(ConnectionError):
            if chunk := self._control.recv(CHUNK):
                *lines, self._unread = (self._unread + chunk).split(b"\n")
                return [json.loads(line) for line in lines]
        return None

    def disconnect(self) -> None:
        """Close the sockets; the fork server then exits with all its workers."""
        self._control.close()
        self._lifeline.close()

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


def _start(spec: WorkerSpec, control: socket.socket, lifeline: socket.socket) -> subprocess.Popen[bytes]:
    modules = [",".join(names) for names in (spec.preload, spec.lazy, spec.left_out)]
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "agentos.engines.template"),
            *(str(control.fileno()), str(lifeline.fileno()), str(os.getpid())),
            *(spec.entry, *modules, spec.warm_up, spec.idle),
        ],
        stdin=subprocess.DEVNULL,
        pass_fds=[control.fileno(), lifeline.fileno()],
        env=dict(spec.environment),
        start_new_session=True,
    )
