"""Runs a gateway as a child process of a run, for the agents of its items."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from typing import cast
from urllib.parse import urlsplit

from agentos.config.secret_variables import credential_variables
from agentos.core.errors import PreflightError
from agentos.core.protocol.codec import decode
from agentos.core.protocol.events import CallCompleted, Event, GatewayExited, GatewayRestored, GatewayWarned
from agentos.core.text.line_assembler import LineAssembler
from agentos.core.text.secrets import Redactor
from agentos.core.text.values import exit_cause
from agentos.engines.gateway_events import CallsSettled
from agentos.gateway.console import PREFIX
from agentos.gateway.tokens import TokenSigner, client_variables

MAX_STARTS = 6  # per run; a gateway that has died this often would die again
START_TIMEOUT = 60.0  # seconds
RESTART_DELAY = 0.2  # seconds, times the number of restarts so far
EXIT_GRACE = 2.0  # seconds
LAST_READ_TIMEOUT = 0.5  # seconds that `stop` waits for another thread to read the last output
MIN_BUDGET = 1e-9  # US dollars; less than any call costs
CHUNK = 65536  # bytes
SHOWN_AT_FAILURE = 3  # last lines of stderr in the error when a gateway does not start


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """How to start the gateway.

    The keys and the token seed are sent over its standard input, because every process of the same user, such as an
    agent, could read its environment until the gateway has protected itself.
    """

    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    redact: Callable[[str], str]
    signer: TokenSigner
    budget: float | None = None

    def start(self, spent: float = 0.0) -> "_GatewayProcess":
        """Start a gateway with the budget that is left after `spent` US dollars."""
        arguments = ("gateway", "--format", "events", "--die-with-parent", *self.arguments)
        if self.budget is not None:
            arguments += ("--budget", f"{max(MIN_BUDGET, self.budget - spent):.9f}")
        secret = credential_variables(self.environment)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agentos", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in self.environment.items() if name not in secret},
            start_new_session=True,
        )
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(
                json.dumps({"seed": self.signer.seed, "environment": secret}).encode() + b"\n"
            )
            process.stdin.flush()
        os.set_blocking(process.stdin.fileno(), False)
        return _GatewayProcess(process, self.redact)


class _GatewayProcess:
    """One gateway process: `records` are the lines of its stdout, `messages` the clean, redacted ones of its stderr."""

    def __init__(self, process: "subprocess.Popen[bytes]", redact: Callable[[str], str]) -> None:
        self._process = process
        self.records: list[bytes] = []
        self.messages: list[str] = []
        self._partial = b""
        self._stderr_lines = LineAssembler(redact)
        # Protects the selector and the partial lines, because the run may stop a gateway while another thread reads
        # from it.
        self._reading = threading.Lock()
        self._selector = selectors.PollSelector()
        for pipe in (process.stdout, process.stderr):
            assert pipe
            self._selector.register(pipe, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def read(self, timeout: float | None) -> bool:
        """Wait for output and read it; False once the gateway has closed its stdout."""
        stdout = self._process.stdout
        # ValueError: `close` has closed the pipe.
        with self._reading, contextlib.suppress(ValueError, OSError):
            # Without a pipe to wait for, `select` would never return.
            if stdout in self._selector.get_map():
                self._read_ready(self._selector.select(timeout))
            return stdout in self._selector.get_map()
        return False

    def _read_ready(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            pipe = cast(BufferedReader, key.fileobj)
            # Not os.read: `close` may have closed the pipe, and its descriptor may refer to another file by now.
            chunk = pipe.read1(CHUNK)
            if not chunk:
                self._selector.unregister(pipe)
            if pipe is self._process.stdout:
                *lines, self._partial = (self._partial + chunk).split(b"\n")
                self.records += lines
            else:
                self.messages += self._stderr_lines.feed(chunk) if chunk else self._stderr_lines.close()

    def wait_until_ready(self, is_cancelled: Callable[[], bool] = lambda: False) -> str | None:
        """The first line of its stdout, which says where it serves. None if it ended or took too long."""
        deadline = time.monotonic() + START_TIMEOUT
        while not self.records and not is_cancelled():
            if not self.read(min(1.0, max(0.0, deadline - time.monotonic()))) and not self.records:
                return None
            if time.monotonic() > deadline:
                self.messages.append(f"not ready after {START_TIMEOUT:.0f} s")
                self._process.kill()
                return None
        return self.records.pop(0).decode("utf-8", "replace") if self.records else None

    def settle(self, item: str) -> bool:
        """Request a CallsSettled; False if the gateway is ending or does not read."""
        stdin = self._process.stdin
        try:
            line = json.dumps(item).encode() + b"\n"
            return stdin is not None and os.write(stdin.fileno(), line) == len(line)
        except (OSError, ValueError):
            return False

    def take_events(self) -> Iterator[Event | CallsSettled]:
        """Return what has been read so far."""
        messages, self.messages = self.messages, []
        for message in messages:
            if text := message.removeprefix(PREFIX).strip():
                yield GatewayWarned(text)
        records, self.records = self.records, []
        for line in records:
            # The last line of a killed process may be incomplete.
            with contextlib.suppress(ValueError, AttributeError):
                record = json.loads(line)
                if "settled" in record:
                    yield CallsSettled(record["settled"])
                    continue
                record.pop("at", None)
                yield decode(record)

    def stop(self) -> None:
        """End the process, and read its last output."""
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(EXIT_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # A reading thread also sees the end of the pipes, unless another process holds them open.
        if self._reading.acquire(timeout=LAST_READ_TIMEOUT):
            try:
                with contextlib.suppress(ValueError, OSError):
                    while ready := self._selector.get_map() and self._selector.select(0):
                        self._read_ready(ready)
            finally:
                self._reading.release()

    def close_pipes(self) -> None:
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


class GatewayChild:
    """A running gateway, restarted at the same address when it dies, at most MAX_STARTS times.

    It stops when its standard input is closed, so it cannot outlive the run.
    """

    def __init__(self, spec: GatewaySpec, process: _GatewayProcess, ready: str) -> None:
        found = json.loads(ready)
        self.url: str = found["url"]
        self._providers = tuple(found["providers"])
        self._signer = spec.signer
        port = ("--port", str(urlsplit(self.url).port))
        self._restarts = replace(spec, arguments=(*spec.arguments, *port))
        self.process = process
        self._closed = threading.Event()
        self._spent = 0.0  # US dollars; a restarted gateway gets what is left of the budget
        # Protects `process`: the thread that reads events must not restart a gateway that the run is closing.
        self._lock = threading.Lock()

    def environment(self, item: str) -> dict[str, str]:
        """Environment variables for the agent of an item; its calls are counted under that item."""
        return client_variables(
            self.url, self._providers, self._signer.token(item), self._restarts.environment
        )

    def settle(self, item: str) -> bool:
        """Make `events` report when all calls of a finished item are counted; False if that is impossible."""
        with self._lock:
            return self.process.settle(item)

    def events(self) -> Iterator[Event | CallsSettled]:
        """Yield counted calls, key changes and messages as they happen, until `close` or the last restart."""
        for event in self._events():
            if isinstance(event, CallCompleted):
                self._spent += event.cost or 0.0
            yield event

    def _events(self) -> Iterator[Event | CallsSettled]:
        for start in range(1, MAX_STARTS + 1):
            process, is_open = self.process, True
            while is_open:
                is_open = process.read(None)
                yield from process.take_events()
            process.stop()
            if self._closed.is_set():
                return
            yield from process.take_events()
            process.close_pipes()
            yield GatewayExited(exit_cause(process.returncode or 0), restarting=start < MAX_STARTS)
            if start < MAX_STARTS and self._restart(start * RESTART_DELAY):
                yield GatewayRestored()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            process = self.process
        process.stop()
        process.close_pipes()

    def _restart(self, delay: float) -> bool:
        """Start a gateway at the same address with the same seed, because the agents already have both."""
        self._closed.wait(delay)
        with self._lock:
            if self._closed.is_set():
                return False
            # If no process or descriptor is free now, the next round tries again.
            with contextlib.suppress(OSError):
                self.process = self._restarts.start(self._spent)
        return self.process.wait_until_ready(self._closed.is_set) is not None


def start_gateway(
    environment: Mapping[str, str],
    arguments: tuple[str, ...] = (),
    redact: Callable[[str], str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    budget: float | None = None,
) -> GatewayChild:
    """Start a gateway and wait until it is ready; if it is killed before that, start another one.

    Raises PreflightError with the gateway's own message if it refuses to start.
    """
    spec = GatewaySpec(environment, arguments, redact or Redactor(), TokenSigner(), budget)
    for start in range(1, MAX_STARTS + 1):
        process = spec.start()
        if ready := process.wait_until_ready():
            return GatewayChild(spec, process, ready)
        process.stop()
        process.close_pipes()
        cause = exit_cause(process.returncode or 0)
        is_killed = (process.returncode or 0) < 0
        if not is_killed or start == MAX_STARTS:
            break
        say(f"The gateway process ended during its start ({cause}). Restarting it...")
    raise PreflightError(f"the gateway did not start ({cause}): {_error_in(process.messages)}")


def _error_in(messages: list[str]) -> str:
    """The error that ended a gateway, from its stderr; if there is none, the last lines."""
    start = next((at for at, text in enumerate(messages) if text.startswith("Error: ")), -SHOWN_AT_FAILURE)
    return "\n".join(messages[start:]).removeprefix("Error: ") or "it wrote no message"
