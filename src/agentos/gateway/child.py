"""Runs a gateway as a child process of a run, for the agents of its items."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from agentos.core.errors import PreflightError
from agentos.core.protocol.codec import decode
from agentos.core.protocol.events import Event, GatewayExited, GatewayRestored
from agentos.gateway.tokens import TokenSigner, client_variables

MAX_STARTS = 6  # per run; a gateway that died this often would die again
EXIT_GRACE = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """How to start the gateway. The keys are in its environment; the token seed is sent over its standard input."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    stderr: int | None
    signer: TokenSigner

    def start(self) -> "subprocess.Popen[str]":
        arguments = ("gateway", "--format", "events", "--die-with-parent", *self.arguments)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agentos", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            env=dict(self.environment),
            start_new_session=True,
        )
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{self.signer.seed}\n")
            process.stdin.flush()
        return process


class GatewayChild:
    """A running gateway, restarted at the same address when it dies, at most MAX_STARTS times.

    It stops when its standard input is closed, so it cannot outlive the run.
    """

    def __init__(self, spec: GatewaySpec, process: "subprocess.Popen[str]", ready: str) -> None:
        found = json.loads(ready)
        self.url: str = found["url"]
        self._providers = tuple(found["providers"])
        self._signer = spec.signer
        port = ("--port", str(urlsplit(self.url).port))
        self._restarts = replace(spec, arguments=(*spec.arguments, *port))
        self.process = process
        self._closed = False
        # Protects `process` and `_closed`: the thread that reads events must not restart a gateway that the run closes.
        self._lock = threading.Lock()

    def environment(self, item: str) -> dict[str, str]:
        """Environment variables for the agent of an item; its calls are counted under that item."""
        return client_variables(self.url, self._providers, self._signer.token(item))

    def events(self) -> Iterator[Event]:
        """Yields counted calls and changes of the keys as they happen; ends after `close` or the last restart."""
        for start in range(MAX_STARTS):
            if start and self._restart():
                yield GatewayRestored()
            process = self.process
            yield from _read_events(process)
            _stop(process)
            if self._closed:
                return
            _close_stdout(process)
            yield GatewayExited(_cause(process.returncode), restarting=start + 1 < MAX_STARTS)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        _stop(self.process)
        _close_stdout(self.process)

    def _restart(self) -> bool:
        """Starts a gateway at the same address with the same seed: agents already have both."""
        with self._lock:
            if self._closed:
                return False
            self.process = self._restarts.start()
        return bool(self.process.stdout and self.process.stdout.readline())


def start_gateway(
    environment: Mapping[str, str], arguments: tuple[str, ...] = (), stderr: int | None = None
) -> GatewayChild:
    """Starts a gateway and waits until it is ready. Its messages go to our stderr, or to the given descriptor."""
    spec = GatewaySpec(environment, arguments, stderr, TokenSigner())
    process = spec.start()
    assert process.stdout
    ready = process.stdout.readline()
    if not ready:
        _stop(process)
        _close_stdout(process)
        raise PreflightError(
            f"the gateway did not start (exit code {process.returncode}); see its message above"
        )
    return GatewayChild(spec, process, ready)


def _read_events(process: "subprocess.Popen[str]") -> Iterator[Event]:
    # ValueError: `close` has closed the pipe.
    with contextlib.suppress(ValueError):
        for line in process.stdout or ():
            # The last line of a killed process may be incomplete.
            with contextlib.suppress(ValueError, AttributeError):
                record = json.loads(line)
                record.pop("at", None)
                yield decode(record)


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(EXIT_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close_stdout(process: "subprocess.Popen[str]") -> None:
    if process.stdout:
        process.stdout.close()


def _cause(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
