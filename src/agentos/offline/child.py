"""The embedded model server as a child of the run."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret

MODEL = "offline-rules-1"
KEYS = 4


@dataclass(frozen=True, slots=True)
class OfflineServer:
    """Ends when its standard input does, so it cannot outlive the run."""

    process: subprocess.Popen[str]

    def credentials(self) -> list[Credential]:
        """Waits until it is ready; it brings keys of its own."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        try:
            ready = json.loads(line)
        except ValueError as error:
            raise PreflightError(f"the offline model server did not start (said {line!r})") from error
        return _credentials(ready["keys"], ready["url"])

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def expected_credentials() -> list[Credential]:
    """Such as the server will bring, for those who do not start it."""
    return _credentials([f"key {number} of a server to come" for number in range(1, KEYS + 1)], None)


def _credentials(keys: list[str], url: str | None) -> list[Credential]:
    return [
        Credential(f"key-{number}", "gemini", Secret(key), url, MODEL) for number, key in enumerate(keys, 1)
    ]


def start_offline_server(environment: Mapping[str, str], arguments: tuple[str, ...] = ()) -> OfflineServer:
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "agentos",
            "offline-server",
            "--die-with-parent",
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=dict(environment),
        start_new_session=True,
    )
    return OfflineServer(process)
