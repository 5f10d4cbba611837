"""Measures a command with all its processes from outside: time, CPU, memory."""

import contextlib
import resource
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.1  # seconds
KILOBYTES = 1024


@dataclass(frozen=True, slots=True)
class Watched:
    """Times in seconds; memory in MB: private and PSS of a worker, and the peak PSS of all processes.

    A worker is a process that never has children. Workers are measured while the most of them run at once, because with
    fewer processes each one's share of shared memory is larger.
    """

    seconds: float
    cpu: float
    own: float
    share: float
    whole: float


def watch(command: list[str], folder: Path, environment: dict[str, str]) -> Watched:
    """Run the command until it exits."""
    before, started = _cpu(), time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    memory = _MemorySampler(process.pid)
    thread = threading.Thread(target=memory.sample)
    thread.start()
    output, _ = process.communicate()
    seconds = time.monotonic() - started
    memory.over.set()
    thread.join()
    assert process.returncode == 0, output.decode(errors="replace")
    worker = memory.worker()
    return Watched(seconds, _cpu() - before, worker.own, worker.share, memory.whole)


@dataclass(frozen=True, slots=True)
class _Size:
    own: float = 0.0
    share: float = 0.0


class _MemorySampler:
    """Samples the memory of a process tree at intervals."""

    def __init__(self, root: int) -> None:
        self.over = threading.Event()
        self.whole = 0.0
        self._root = root
        self._samples: list[dict[int, _Size]] = []
        self._parents = {root}

    def sample(self) -> None:
        while not self.over.wait(INTERVAL):
            children = _children()
            sizes = {pid: _size(pid) for pid in _process_tree(self._root, children)}
            self._parents.update(pid for pid in sizes if pid in children)
            self.whole = max(self.whole, sum(size.share for size in sizes.values()))
            self._samples.append(sizes)

    def worker(self) -> _Size:
        """The median worker while the most workers run at once; tiny processes such as shell helpers are left out."""
        samples = [self._workers(sample) for sample in self._samples]
        peak_count = max(map(len, samples), default=0)
        medians = [_median(sample) for sample in samples if 0 < len(sample) == peak_count]
        return max(medians, key=lambda size: size.share, default=_Size())

    def _workers(self, sample: dict[int, _Size]) -> list[_Size]:
        return [size for pid, size in sample.items() if pid not in self._parents and size.share > 1]


def _median(sizes: list[_Size]) -> _Size:
    return _Size(
        statistics.median(size.own for size in sizes), statistics.median(size.share for size in sizes)
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children() -> dict[int, list[int]]:
    """Maps each parent to its children, for all processes."""
    found: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(process.name))
    return found


def _process_tree(root: int, children: dict[int, list[int]]) -> set[int]:
    found = {root}
    for pid in (waiting := [root]):
        waiting.extend(children.get(pid, []))
        found.add(pid)
    return found


def _size(pid: int) -> _Size:
    """Zero if the process has exited or may not be read."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return _Size()
    found = {
        name: int(rest.split()[0]) / KILOBYTES for name, _, rest in (line.partition(":") for line in lines)
    }
    return _Size(found.get("Private_Clean", 0) + found.get("Private_Dirty", 0), found.get("Pss", 0))
