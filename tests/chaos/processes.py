"""Identifies the processes of a run from /proc."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.scenarios.harness import ProcessHandle, command_line, descendants

FORK_SERVER_MODULE = "agentos.engines.template"


class Role(StrEnum):
    COORDINATOR = "coordinator"
    FORK_SERVER = "fork server"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Member:
    process: ProcessHandle
    role: Role
    parent: int


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """A coordinator with its fork server and workers."""

    members: tuple[Member, ...]

    def of(self, role: Role) -> list[Member]:
        return [member for member in self.members if member.role is role]

    def dies_with(self, victim: Member) -> list[Member]:
        """The workers that die with this process."""
        match victim.role:
            case Role.WORKER:
                return [victim]
            case Role.FORK_SERVER:
                return [member for member in self.of(Role.WORKER) if member.parent == victim.process.pid]
            case Role.COORDINATOR:
                return self.of(Role.WORKER)


def process_tree(coordinator: int) -> ProcessTree:
    fields = _stat(coordinator)
    if not fields:
        return ProcessTree(())
    own = Member(ProcessHandle(coordinator, fields[19]), Role.COORDINATOR, int(fields[1]))
    below = [_member(mark, coordinator) for mark in descendants(coordinator)]
    return ProcessTree((own, *(member for member in below if member)))


def _member(mark: ProcessHandle, coordinator: int) -> Member | None:
    fields = _stat(mark.pid)
    if not fields or FORK_SERVER_MODULE not in command_line(mark.pid):
        return None
    parent = int(fields[1])
    return Member(mark, Role.FORK_SERVER if parent == coordinator else Role.WORKER, parent)


def orphans_of(coordinator: int) -> list[int]:
    """Live processes of a dead coordinator, whose pid is among their arguments."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _made_for(pid) == str(coordinator) and _is_alive(pid)]


def processes_naming(folder: Path) -> list[int]:
    """Live processes with this folder among their arguments."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if f"{folder}" in command_line(pid) and _is_alive(pid)]


def working_in(folder: Path) -> list[int]:
    """Live processes that work in this folder."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            is_inside = os.readlink(f"/proc/{pid}/cwd") == str(folder)
        except OSError:
            continue
        if is_inside and _is_alive(pid):
            found.append(pid)
    return found


def _made_for(pid: int) -> str | None:
    words = command_line(pid).split()
    if FORK_SERVER_MODULE not in words:
        return None
    # Its arguments are two descriptors, then the pid of its coordinator.
    return next(iter(words[words.index(FORK_SERVER_MODULE) + 3 :]), None)


def _is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the command name; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []


def lock_holders(project: Path) -> dict[int, str]:
    """The project lock held by each process; `LLD-42` for an item's."""
    held = locked(project.glob(".locks/*.lock"))
    return {pid: path.stem.removeprefix("task-") for pid, path in held.items()}


def locked(files: Iterable[Path]) -> dict[int, Path]:
    """The locked file among these, by the pid of its holder."""
    inodes = {path.stat().st_ino: path for path in files}
    held = {}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and "->" not in fields:
            pid, place = fields[4], fields[5]
            if (inode := int(place.rpartition(":")[2])) in inodes:
                held[int(pid)] = inodes[inode]
    return held
