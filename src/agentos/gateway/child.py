"""A gateway as a child of a run, for the agents of its items."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentos.core.errors import PreflightError
from agentos.core.events import Event
from agentos.core.wire import decode
from agentos.gateway.tokens import Mint
from agentos.gateway.variables import variables


@dataclass(frozen=True, slots=True)
class GatewayChild:
    """Ends when its standard input does, so it cannot outlive the run."""

    process: subprocess.Popen[str]
    url: str
    providers: tuple[str, ...]
    mint: Mint

    def environment(self, item: str) -> dict[str, str]:
        """What the agent of this item is to find; its calls are counted for it."""
        return variables(self.url, self.providers, self.mint.token(item))

    def events(self) -> Iterator[Event]:
        """Calls counted by item, and news of the keys, as they come; blocks until the next, ends with it."""
        for line in self.process.stdout or ():
            record = json.loads(line)
            record.pop("at", None)
            yield decode(record)

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def start_gateway(
    environment: Mapping[str, str], arguments: tuple[str, ...] = (), people: int | None = None
) -> GatewayChild:
    """Its environment has the keys; those who ask it get only a token. It speaks to people on stderr, or there."""
    mint = Mint()
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "agentos",
            "gateway",
            "--format",
            "events",
            "--die-with-parent",
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=people,
        text=True,
        env=dict(environment),
        start_new_session=True,
    )
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(f"{mint.seed}\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        raise PreflightError(
            f"the gateway did not start (exit code {process.wait()}); see what it said above"
        )
    ready = json.loads(line)
    return GatewayChild(process, ready["url"], tuple(ready["providers"]), mint)
