"""What the sweeps share: what one did, its shim, and what must hold after a kill."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.processes import naming, orphans_of
from tests.faults.shim import Shim, compiled
from tests.scenarios.harness import CompletedCommand, RunHarness, RunningCommand, wait_until

ORPHANS_AFTER = 2.0
TRACEBACK = "Traceback (most"


@dataclass(slots=True)
class Sweep:
    """What one sweep did, and everything that was found against a promise."""

    name: str
    kills: int = 0
    last: int = 0
    """The highest n that was reached; there are no further calls after it."""
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        found = f"{len(self.violations)} violations" if self.violations else "no violation"
        return f"{self.name}: {self.kills} kills, n up to {self.last}, {found}, {self.seconds:.0f} s"

    @contextmanager
    def timed(self) -> Iterator["Sweep"]:
        """A sweep that killed nobody has shown nothing."""
        began = time.monotonic()
        yield self
        self.seconds = time.monotonic() - began
        if not self.kills:
            self.violations.append("nobody was killed")

    def killed(self, n: int) -> None:
        self.kills, self.last = self.kills + 1, max(self.last, n)


def shim_of(harness: RunHarness, name: str) -> Shim:
    library = compiled()
    assert library, "needs a C compiler (gcc or cc)"
    return Shim(library, harness, name)


def aftermath(
    harness: RunHarness, running: RunningCommand, n: int, others: Sequence[int] = ()
) -> Iterator[str]:
    """The command that was to be killed is, and nobody that it started is left; `others` belong to nobody of it."""
    if (code := running.wait(60).code) != -9:
        yield f"the process to be killed at call {n} ended with {code}"
    try:
        wait_until(lambda: not _left(harness, running.pid, others), ORPHANS_AFTER)
    except AssertionError:
        yield f"call {n}: orphans {_left(harness, running.pid, others)}"


def _left(harness: RunHarness, pid: int, others: Sequence[int]) -> list[int]:
    return [*orphans_of(pid), *(one for one in naming(harness.project) if one not in others)]


def readable(harness: RunHarness, *words: str) -> Iterator[str]:
    """Whatever the killed wrote of themselves can be read."""
    for word in words or ("runs", "status", "keys"):
        yield from sound(f"agentos {word}", harness.run(word, program="agentos"))


def sound(name: str, done: CompletedCommand, *codes: int) -> Iterator[str]:
    """It ended as it may, and without a traceback."""
    if done.code not in (codes or (0,)) or TRACEBACK in done.out + done.err:
        yield f"{name} ended with {done.code}: {(done.out + done.err)[-500:]}"
