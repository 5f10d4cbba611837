"""A gateway as a child of a run, for the agents of its items."""

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
from agentos.gateway.client_env import client_variables
from agentos.gateway.tokens import TokenSigner

MAX_STARTS = 6
"""So often one is started in a run, at most: what dies that often would die again."""
EXIT_GRACE = 2.0


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """How it is started; its environment has the keys, and the seed goes over its standard input."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    people: int | None
    signer: TokenSigner

    def start(self) -> "subprocess.Popen[str]":
        words = ("gateway", "--format", "events", "--die-with-parent", *self.arguments)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agentos", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.people,
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
    """Ends when its standard input does, so it cannot outlive the run; one that dies is followed by another."""

    def __init__(self, spec: GatewaySpec, process: "subprocess.Popen[str]", ready: str) -> None:
        found = json.loads(ready)
        self.url: str = found["url"]
        self._providers = tuple(found["providers"])
        self._signer = spec.signer
        port = ("--port", str(urlsplit(self.url).port))
        self._restarts = replace(spec, arguments=(*spec.arguments, *port))
        self.process = process
        self._closed = False
        # Keeps the reader's thread from starting another while the run closes the last one.
        self._lock = threading.Lock()

    def environment(self, item: str) -> dict[str, str]:
        """What the agent of this item is to find; its calls are counted for it."""
        return client_variables(self.url, self._providers, self._signer.token(item))

    def events(self) -> Iterator[Event]:
        """Calls counted by item, and news of the keys, as they come; blocks until the next, ends with the last."""
        for life in range(MAX_STARTS):
            if life and self._is_back():
                yield GatewayRestored()
            process = self.process
            yield from _heard(process)
            _end(process)
            if self._closed:
                return
            _close(process)
            yield GatewayExited(_cause(process.returncode), restarting=life + 1 < MAX_STARTS)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        _end(self.process)
        _close(self.process)

    def _is_back(self) -> bool:
        """At the same address: programs have that, and their tokens, already."""
        with self._lock:
            if self._closed:
                return False
            self.process = self._restarts.start()
        return bool(self.process.stdout and self.process.stdout.readline())


def start_gateway(
    environment: Mapping[str, str], arguments: tuple[str, ...] = (), people: int | None = None
) -> GatewayChild:
    """Those who ask it get only a token. It speaks to people on stderr, or there."""
    spec = GatewaySpec(environment, arguments, people, TokenSigner())
    process = spec.start()
    assert process.stdout
    ready = process.stdout.readline()
    if not ready:
        _end(process)
        _close(process)
        raise PreflightError(
            f"the gateway did not start (exit code {process.returncode}); see what it said above"
        )
    return GatewayChild(spec, process, ready)


def _heard(process: "subprocess.Popen[str]") -> Iterator[Event]:
    """Until it ends, or is closed."""
    with contextlib.suppress(ValueError):
        for line in process.stdout or ():
            # One that is killed may leave its last line unfinished.
            with contextlib.suppress(ValueError, AttributeError):
                record = json.loads(line)
                record.pop("at", None)
                yield decode(record)


def _end(process: "subprocess.Popen[str]") -> None:
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(EXIT_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close(process: "subprocess.Popen[str]") -> None:
    if process.stdout:
        process.stdout.close()


def _cause(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
