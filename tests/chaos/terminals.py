"""Commands that are restarted whenever they exit, as a persistent user would do."""

import contextlib
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.scenarios.harness import DIE_WITH_PARENT, PROGRAMS, RunHarness, command_line, descendants

RESTART_AFTER_KILL = 0.1  # seconds
RESTART_AFTER_EXIT = 3.0  # seconds


@dataclass(slots=True)
class Terminal:
    """One command line; its output files are kept until the campaign has been checked."""

    harness: RunHarness
    name: str
    command: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command prefix, such as one that makes a container."""
    exit_codes: Counter[int] = field(default_factory=Counter)
    _process: subprocess.Popen[bytes] | None = None
    _starts: int = 0
    _not_before: float = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def coordinator(self) -> int | None:
        """The coordinator's pid; in a container it is a child of the process that was started."""
        if self.pid is None or not self.before:
            return self.pid
        return next(
            (found.pid for found in descendants(self.pid) if self.command[0] in command_line(found.pid)), None
        )

    def start(self) -> None:
        """Call from the main thread only: the process dies with the thread that started it."""
        self._starts += 1
        with open(self._file("out"), "wb") as out, open(self._file("err"), "wb") as err:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *self.before, str(PROGRAMS / self.command[0]), *self.command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.harness.project,
                env=self.harness.environment(),
                start_new_session=True,
            )

    def start_if_due(self) -> None:
        if self._process is None and time.monotonic() >= self._not_before:
            self.start()

    def poll_exited(self) -> int | None:
        """The pid of the process if it has exited since the last call."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        pid, self._process = self._process.pid, None
        self.exit_codes[code] += 1
        self._not_before = time.monotonic() + (RESTART_AFTER_KILL if code < 0 else RESTART_AFTER_EXIT)
        return pid

    def wait(self, seconds: float) -> int | None:
        """The exit code; None on timeout."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(max(0.1, seconds))
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def output(self) -> str:
        """Everything that its processes have written."""
        files = sorted(self.harness.root.glob(f"{self.name}-*"))
        return "".join(file.read_text("utf-8", "replace") for file in files)

    def _file(self, kind: str) -> Path:
        return self.harness.root / f"{self.name}-{self._starts:04}.{kind}"
