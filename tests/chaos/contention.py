"""Many processes that contend for a few item locks, with slow work and slow lock calls."""

import contextlib
import fcntl
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.scenarios.harness import DIE_WITH_PARENT

PROCESSES = 8
ITEMS = 2
MAX_WORK = 0.12  # seconds
MAX_LOCK_DELAY = 0.004  # seconds


def contend(folder: Path, seconds: float, seed: int, environment: dict[str, str]) -> list[str]:
    """The violations: two holders of one lock, a replaced lock file, or no contention at all."""
    (folder / ".locks").mkdir(mode=0o700, parents=True)
    files = [folder / ".locks" / f"task-LLD-{number}.lock" for number in range(1, ITEMS + 1)]
    for file in files:
        file.touch(0o600)
    inodes_before = [file.stat().st_ino for file in files]
    command = [*DIE_WITH_PARENT, sys.executable, "-m", "tests.chaos.contention", str(folder), str(seconds)]
    processes = [
        subprocess.Popen(
            [*command, str(seed + number)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=Path(__file__).parents[2],
        )
        for number in range(PROCESSES)
    ]
    outputs = [process.communicate(timeout=seconds + 60)[0].splitlines() for process in processes]
    overlaps = [line for lines in outputs for line in lines if line.startswith("overlap")]
    counts = [line.split() for lines in outputs for line in lines if line.startswith("took")]
    # If the file was replaced, a holder of the old file and one of the new file can hold the lock at once.
    inodes_after = [file.stat().st_ino if file.exists() else 0 for file in files]
    overlaps += [
        f"a lock file was replaced: {file.name}"
        for file, a, b in zip(files, inodes_before, inodes_after, strict=True)
        if a != b
    ]
    if sum(int(count[1]) for count in counts) < PROCESSES or not sum(int(count[3]) for count in counts):
        overlaps.append(f"vacuous, no contention: {outputs}")
    return overlaps


def main(folder: Path, seconds: float, seed: int) -> None:
    """One contender: acquire a lock, check that nobody else holds it, work, release."""
    from agentos.storage.locks import Holder, ItemLocks

    rng, end = random.Random(seed), time.monotonic() + seconds
    _delay_locking(rng)
    locks = ItemLocks(folder)
    locks.prepare()
    acquired = missed = 0
    while time.monotonic() < end:
        item = f"LLD-{rng.randint(1, ITEMS)}"
        lock = locks.acquire(item, Holder(os.getpid(), "contention"))
        if lock is None:
            missed += 1
            time.sleep(rng.uniform(0, 0.002))
            continue
        acquired += 1
        _work(folder / f"{item}.inside", rng.choice((0.0, 0.0, MAX_WORK)))
        lock.release()
    print(f"took {acquired} missed {missed}", flush=True)


def _delay_locking(rng: random.Random) -> None:
    """Delay flock, as if the process often lost its core between opening the file and locking it."""
    flock = fcntl.flock

    def delayed_flock(descriptor: int, operation: int) -> None:
        time.sleep(rng.uniform(0, MAX_LOCK_DELAY))
        flock(descriptor, operation)

    fcntl.flock = delayed_flock  # type: ignore[assignment]


def _work(marker: Path, seconds: float) -> None:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        print(f"overlap: two holders in {marker.name}", flush=True)
        return
    time.sleep(seconds)
    with contextlib.suppress(FileNotFoundError):
        marker.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
