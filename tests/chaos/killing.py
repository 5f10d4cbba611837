"""Shared by the sweeps: the result of a sweep, its shim, and the checks after a kill."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.processes import orphans_of, processes_naming
from tests.faults.shim import Shim, compiled
from tests.scenarios.harness import CompletedCommand, RunHarness, RunningCommand, wait_until

ORPHANS_AFTER = 2.0
TRACEBACK = "Traceback (most"


@dataclass(slots=True)
class Sweep:
    """The result of one sweep, with every broken promise."""

    name: str
    kills: int = 0
    last: int = 0
    """The highest call number reached."""
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        found = f"{len(self.violations)} violations" if self.violations else "no violation"
        return f"{self.name}: {self.kills} kills, n up to {self.last}, {found}, {self.seconds:.0f} s"

    @contextmanager
    def timed(self) -> Iterator["Sweep"]:
        """Measure the time; a sweep without a kill is a violation, since it proves nothing."""
        began = time.monotonic()
        yield self
        self.seconds = time.monotonic() - began
        if not self.kills:
            self.violations.append("no process was killed")

    def killed(self, n: int) -> None:
        self.kills, self.last = self.kills + 1, max(self.last, n)


def shim_of(harness: RunHarness, name: str) -> Shim:
    library = compiled()
    assert library, "needs a C compiler (gcc or cc)"
    return Shim(library, harness, name)


def check_killed(
    harness: RunHarness, running: RunningCommand, n: int, others: Sequence[int] = ()
) -> Iterator[str]:
    """Check that the command was killed and left no process behind, `others` aside."""
    if (code := running.wait(60).code) != -9:
        yield f"the process to be killed at call {n} ended with {code}"
    try:
        wait_until(lambda: not _left(harness, running.pid, others), ORPHANS_AFTER)
    except AssertionError:
        yield f"call {n}: orphans {_left(harness, running.pid, others)}"


def _left(harness: RunHarness, pid: int, others: Sequence[int]) -> list[int]:
    return [*orphans_of(pid), *(one for one in processes_naming(harness.project) if one not in others)]


def readable(harness: RunHarness, *words: str) -> Iterator[str]:
    """Check that the records of killed runs can be read."""
    for word in words or ("runs", "status", "keys"):
        yield from sound(f"agentos {word}", harness.run(word, program="agentos"))


def sound(name: str, done: CompletedCommand, *codes: int) -> Iterator[str]:
    """Check the exit code, and that there is no traceback."""
    if done.code not in (codes or (0,)) or TRACEBACK in done.out + done.err:
        yield f"{name} ended with {done.code}: {(done.out + done.err)[-500:]}"
