"""Starts the offline server as a child process of a run."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.core.text.values import exit_cause
from agentos.offline import MODEL_NAME

KEY_COUNT = 4
EXIT_GRACE = 1.0  # seconds
MAX_MESSAGE_BYTES = 65536


@dataclass(frozen=True, slots=True)
class OfflineServer:
    """A running offline server. It stops when its standard input is closed, so it cannot outlive the run."""

    process: subprocess.Popen[str]
    stderr: IO[bytes]

    def credentials(self) -> list[Credential]:
        """Waits until the server is ready, and returns the keys that it made."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        try:
            ready = json.loads(line)
        except ValueError as error:
            raise PreflightError(f"the offline model server did not start: {self._last_message()}") from error
        return _credentials(ready["keys"], ready["url"])

    def _last_message(self) -> str:
        """Why it did not start: the last line of its stderr."""
        self.process.wait(EXIT_GRACE)
        self.stderr.seek(0)
        lines = self.stderr.read(MAX_MESSAGE_BYTES).decode("utf-8", "replace").strip().splitlines()
        return lines[-1].removeprefix("Error: ") if lines else exit_cause(self.process.returncode)

    def close(self) -> None:
        self.stderr.close()
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
    stderr = _message_file()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=dict(environment),
        start_new_session=True,
    )
    return OfflineServer(process, stderr)


def _message_file() -> IO[bytes]:
    """Where the server's messages go. A file, because nobody reads a pipe during the run."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # no folder is writable; the run itself reports that better
        return open(os.devnull, "r+b")


def expected_credentials() -> list[Credential]:
    """Credentials like those of a server that is not started, for planning."""
    return _credentials([f"key {number} of a server to come" for number in range(1, KEY_COUNT + 1)], None)


def _credentials(keys: list[str], url: str | None) -> list[Credential]:
    return [
        Credential(f"key-{number}", "gemini", Secret(key), url, MODEL_NAME)
        for number, key in enumerate(keys, 1)
    ]
