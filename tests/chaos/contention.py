"""Many processes that want the same few item locks, with slow work under them and slow calls to get them."""

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
LONGEST = 0.12
SLOWEST_CALL = 0.004


def contend(folder: Path, seconds: float, seed: int, environment: dict[str, str]) -> list[str]:
    """What two processes did at once under one lock; also, that they contended at all."""
    (folder / ".locks").mkdir(mode=0o700, parents=True)
    files = [folder / ".locks" / f"task-LLD-{number}.lock" for number in range(1, ITEMS + 1)]
    for file in files:
        file.touch(0o600)
    before = [file.stat().st_ino for file in files]
    words = [*DIE_WITH_PARENT, sys.executable, "-m", "tests.chaos.contention", str(folder), str(seconds)]
    processes = [
        subprocess.Popen(
            [*words, str(seed + number)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=Path(__file__).parents[2],
        )
        for number in range(PROCESSES)
    ]
    said = [process.communicate(timeout=seconds + 60)[0].splitlines() for process in processes]
    overlaps = [line for lines in said for line in lines if line.startswith("overlap")]
    counts = [line.split() for lines in said for line in lines if line.startswith("took")]
    # Whoever still has the old file open, and whoever opens the new one, can both have the lock.
    after = [file.stat().st_ino if file.exists() else 0 for file in files]
    overlaps += [
        f"a lock file was replaced: {file.name}"
        for file, a, b in zip(files, before, after, strict=True)
        if a != b
    ]
    if sum(int(count[1]) for count in counts) < PROCESSES or not sum(int(count[3]) for count in counts):
        overlaps.append(f"an empty pass: {said}")
    return overlaps


def main(folder: Path, seconds: float, seed: int) -> None:
    """One of them: takes a lock, looks whether it is alone, works, lets go."""
    from agentos.storage.locks import Holder, ItemLocks

    rng, end = random.Random(seed), time.monotonic() + seconds
    _slow_down(rng)
    locks = ItemLocks(folder)
    locks.prepare()
    took = missed = 0
    while time.monotonic() < end:
        item = f"LLD-{rng.randint(1, ITEMS)}"
        lock = locks.acquire(item, Holder(os.getpid(), "contention"))
        if lock is None:
            missed += 1
            time.sleep(rng.uniform(0, 0.002))
            continue
        took += 1
        _work(folder / f"{item}.inside", rng.choice((0.0, 0.0, LONGEST)))
        lock.release()
    print(f"took {took} missed {missed}", flush=True)


def _slow_down(rng: random.Random) -> None:
    """A process may lose its core between any two calls: here, often between opening and locking."""
    flock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        time.sleep(rng.uniform(0, SLOWEST_CALL))
        flock(descriptor, operation)

    fcntl.flock = late  # type: ignore[assignment]


def _work(mark: Path, seconds: float) -> None:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        print(f"overlap: two in {mark.name}", flush=True)
        return
    time.sleep(seconds)
    with contextlib.suppress(FileNotFoundError):
        mark.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
