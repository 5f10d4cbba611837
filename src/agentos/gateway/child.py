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
from agentos.core.events import Event, GatewayEnded, GatewayRestored
from agentos.core.wire import decode
from agentos.gateway.tokens import Mint
from agentos.gateway.variables import variables

LIVES = 6
"""So often one is started in a run, at most: what dies that often would die again."""
LAST_WORDS = 2.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How it is started; its environment has the keys, and the seed goes over its standard input."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    people: int | None
    mint: Mint

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
            process.stdin.write(f"{self.mint.seed}\n")
            process.stdin.flush()
        return process


class GatewayChild:
    """Ends when its standard input does, so it cannot outlive the run; one that dies is followed by another."""

    def __init__(self, recipe: Recipe, process: "subprocess.Popen[str]", ready: str) -> None:
        found = json.loads(ready)
        self.url: str = found["url"]
        self._providers = tuple(found["providers"])
        self._mint = recipe.mint
        port = ("--port", str(urlsplit(self.url).port))
        self._again = replace(recipe, arguments=(*recipe.arguments, *port))
        self.process = process
        self._closed = False
        # Keeps the reader's thread from starting another while the run closes the last one.
        self._lock = threading.Lock()

    def environment(self, item: str) -> dict[str, str]:
        """What the agent of this item is to find; its calls are counted for it."""
        return variables(self.url, self._providers, self._mint.token(item))

    def events(self) -> Iterator[Event]:
        """Calls counted by item, and news of the keys, as they come; blocks until the next, ends with the last."""
        for life in range(LIVES):
            if life and self._is_back():
                yield GatewayRestored()
            process = self.process
            yield from _heard(process)
            _end(process)
            if self._closed:
                return
            _close(process)
            yield GatewayEnded(_cause(process.returncode), again=life + 1 < LIVES)

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
            self.process = self._again.start()
        return bool(self.process.stdout and self.process.stdout.readline())


def start_gateway(
    environment: Mapping[str, str], arguments: tuple[str, ...] = (), people: int | None = None
) -> GatewayChild:
    """Those who ask it get only a token. It speaks to people on stderr, or there."""
    recipe = Recipe(environment, arguments, people, Mint())
    process = recipe.start()
    assert process.stdout
    ready = process.stdout.readline()
    if not ready:
        _end(process)
        _close(process)
        raise PreflightError(
            f"the gateway did not start (exit code {process.returncode}); see what it said above"
        )
    return GatewayChild(recipe, process, ready)


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
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close(process: "subprocess.Popen[str]") -> None:
    if process.stdout:
        process.stdout.close()


def _cause(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
