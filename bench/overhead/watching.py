"""A command and all its processes, watched from outside: time, cores, memory."""

import contextlib
import resource
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.1
KILOBYTES = 1024


@dataclass(frozen=True, slots=True)
class Watched:
    """Memory in MB: of a worker, what is its own and what is its share; of all together, the most.

    A worker is a process that never has children; what two processes share is halved between them (PSS). It is looked
    at while most of them are at work, at its largest: with fewer, each has more of what they share.
    """

    seconds: float
    cpu: float
    own: float
    share: float
    whole: float


def watch(command: list[str], folder: Path, environment: dict[str, str]) -> Watched:
    """Runs it to its end."""
    before, began = _cpu(), time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    memory = _Memory(process.pid)
    thread = threading.Thread(target=memory.look)
    thread.start()
    said, _ = process.communicate()
    seconds = time.monotonic() - began
    memory.over.set()
    thread.join()
    assert process.returncode == 0, said.decode(errors="replace")
    worker = memory.worker()
    return Watched(seconds, _cpu() - before, worker.own, worker.share, memory.whole)


@dataclass(frozen=True, slots=True)
class _Size:
    own: float = 0.0
    share: float = 0.0


class _Memory:
    """Looks at a family of processes now and then."""

    def __init__(self, root: int) -> None:
        self.over = threading.Event()
        self.whole = 0.0
        self._root = root
        self._looks: list[dict[int, _Size]] = []
        self._parents = {root}

    def look(self) -> None:
        while not self.over.wait(INTERVAL):
            children = _children()
            sizes = {pid: _size(pid) for pid in _family(self._root, children)}
            self._parents.update(pid for pid in sizes if pid in children)
            self.whole = max(self.whole, sum(size.share for size in sizes.values()))
            self._looks.append(sizes)

    def worker(self) -> _Size:
        """The usual one of the most at once; what hardly lived, such as a shell's helper, is none."""
        looks = [self._workers(look) for look in self._looks]
        most = max(map(len, looks), default=0)
        usual = [_usual(look) for look in looks if 0 < len(look) == most]
        return max(usual, key=lambda size: size.share, default=_Size())

    def _workers(self, look: dict[int, _Size]) -> list[_Size]:
        return [size for pid, size in look.items() if pid not in self._parents and size.share > 1]


def _usual(sizes: list[_Size]) -> _Size:
    return _Size(
        statistics.median(size.own for size in sizes), statistics.median(size.share for size in sizes)
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children() -> dict[int, list[int]]:
    """Parent -> its children, for every process that there is."""
    found: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(place.name))
    return found


def _family(root: int, children: dict[int, list[int]]) -> set[int]:
    found = {root}
    for pid in (waiting := [root]):
        waiting.extend(children.get(pid, []))
        found.add(pid)
    return found


def _size(pid: int) -> _Size:
    """Nothing for one that is gone, or is none of ours to look at."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return _Size()
    found = {
        name: int(rest.split()[0]) / KILOBYTES for name, _, rest in (line.partition(":") for line in lines)
    }
    return _Size(found.get("Private_Clean", 0) + found.get("Private_Dirty", 0), found.get("Pss", 0))
