"""Commands that are started again whenever they end, as a stubborn user would."""

import contextlib
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.scenarios.harness import DIE_WITH_PARENT, PROGRAMS, RunHarness

AFTER_DEATH = 0.1
AFTER_END = 3.0


@dataclass(slots=True)
class Terminal:
    """One command line; its output goes to files that stay until the campaign is judged."""

    harness: RunHarness
    name: str
    words: tuple[str, ...]
    endings: Counter[int] = field(default_factory=Counter)
    _process: subprocess.Popen[bytes] | None = None
    _starts: int = 0
    _not_before: float = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """To be called from the main thread: what is started ends with the thread that did it."""
        self._starts += 1
        with open(self._file("out"), "wb") as out, open(self._file("err"), "wb") as err:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, str(PROGRAMS / self.words[0]), *self.words[1:]],
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

    def ended(self) -> int | None:
        """The process that has ended since the last look."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        pid, self._process = self._process.pid, None
        self.endings[code] += 1
        self._not_before = time.monotonic() + (AFTER_DEATH if code < 0 else AFTER_END)
        return pid

    def wait(self, seconds: float) -> int | None:
        """The exit code; None if it has not ended in that time."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(max(0.1, seconds))
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """Everything that any of its processes has written."""
        files = sorted(self.harness.root.glob(f"{self.name}-*"))
        return "".join(file.read_text("utf-8", "replace") for file in files)

    def _file(self, kind: str) -> Path:
        return self.harness.root / f"{self.name}-{self._starts:04}.{kind}"
