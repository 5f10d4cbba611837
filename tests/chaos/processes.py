"""Who is who among the processes of a run, as the kernel tells it."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.scenarios.harness import ProcessHandle, command_line, descendants

TEMPLATE_MODULE = "agentos.engines.template"


class Role(StrEnum):
    COORDINATOR = "coordinator"
    TEMPLATE = "template"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Member:
    mark: ProcessHandle
    role: Role
    parent: int


@dataclass(frozen=True, slots=True)
class Family:
    """One coordinator and all that lives below it."""

    members: tuple[Member, ...]

    def of(self, role: Role) -> list[Member]:
        return [member for member in self.members if member.role is role]

    def dies_with(self, victim: Member) -> list[Member]:
        """The workers that a death takes along."""
        match victim.role:
            case Role.WORKER:
                return [victim]
            case Role.TEMPLATE:
                return [member for member in self.of(Role.WORKER) if member.parent == victim.mark.pid]
            case Role.COORDINATOR:
                return self.of(Role.WORKER)


def family_of(coordinator: int) -> Family:
    fields = _stat(coordinator)
    if not fields:
        return Family(())
    own = Member(ProcessHandle(coordinator, fields[19]), Role.COORDINATOR, int(fields[1]))
    below = [_member(mark, coordinator) for mark in descendants(coordinator)]
    return Family((own, *(member for member in below if member)))


def _member(mark: ProcessHandle, coordinator: int) -> Member | None:
    fields = _stat(mark.pid)
    if not fields or TEMPLATE_MODULE not in command_line(mark.pid):
        return None
    parent = int(fields[1])
    return Member(mark, Role.TEMPLATE if parent == coordinator else Role.WORKER, parent)


def orphans_of(coordinator: int) -> list[int]:
    """What still lives of a dead coordinator's processes: all of them carry its number in their arguments."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _made_for(pid) == str(coordinator) and _is_alive(pid)]


def naming(folder: Path) -> list[int]:
    """The living processes that have something of this folder among their arguments."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if f"{folder}" in command_line(pid) and _is_alive(pid)]


def _made_for(pid: int) -> str | None:
    words = command_line(pid).split()
    if TEMPLATE_MODULE not in words:
        return None
    return next(iter(words[words.index(TEMPLATE_MODULE) + 2 :]), None)


def _is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def lock_holders(project: Path) -> dict[int, str]:
    """Process -> the lock of this project that it holds, `LLD-42` for an item's."""
    held = locked(project.glob(".locks/*.lock"))
    return {pid: path.stem.removeprefix("task-") for pid, path in held.items()}


def locked(files: Iterable[Path]) -> dict[int, Path]:
    """Process -> the file among these that it holds the lock of."""
    inodes = {path.stat().st_ino: path for path in files}
    held = {}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and "->" not in fields:
            pid, place = fields[4], fields[5]
            if (inode := int(place.rpartition(":")[2])) in inodes:
                held[int(pid)] = inodes[inode]
    return held
