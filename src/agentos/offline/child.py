"""Starts the offline server as a child process of a run."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.offline import MODEL_NAME

KEY_COUNT = 4
EXIT_GRACE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class OfflineServer:
    """A running offline server. It stops when its standard input is closed, so it cannot outlive the run."""

    process: subprocess.Popen[str]

    def credentials(self) -> list[Credential]:
        """Waits until the server is ready, and returns the keys that it made."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        try:
            ready = json.loads(line)
        except ValueError as error:
            raise PreflightError(f"the offline model server did not start (its output: {line!r})") from error
        return _credentials(ready["keys"], ready["url"])

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(EXIT_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def start_offline_server(environment: Mapping[str, str], arguments: tuple[str, ...] = ()) -> OfflineServer:
    command = [sys.executable, "-P", "-m", "agentos", "offline-server", "--die-with-parent", *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(environment),
        start_new_session=True,
    )
    return OfflineServer(process)


def expected_credentials() -> list[Credential]:
    """Credentials like those of a server that is not started, for planning."""
    return _credentials([f"key {number} of a server to come" for number in range(1, KEY_COUNT + 1)], None)


def _credentials(keys: list[str], url: str | None) -> list[Credential]:
    return [
        Credential(f"key-{number}", "gemini", Secret(key), url, MODEL_NAME)
        for number, key in enumerate(keys, 1)
    ]
