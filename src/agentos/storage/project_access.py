"""Checks whether this user may write where a run writes: the checkout may be shared, or belong to somebody else.

Files of a project follow the umask and the group of its folder. With umask 002 in a folder of a common group, everyone in
the group can continue what another member began; with umask 022 only the owner can, which is detected here.
"""

import contextlib
import os
import pwd
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError

LOCKS = ".locks"
# Where a run writes. A folder that does not exist yet is created in the one above it.
WRITTEN_FOLDERS = (
    LOCKS,
    "docs/lld/active",
    "docs/lld/needs-revision",
    "docs/issues/needs-revision",
    "docs/lineage/active",
    "docs/lineage/done",
)


@dataclass(frozen=True, slots=True)
class DeniedPath:
    """A file or folder that this user may not use in the way that a run needs."""

    path: Path
    owner: int
    mode: int
    is_in_our_group: bool
    is_read_only: bool = False

    @property
    def problem(self) -> str:
        if self.is_read_only:
            return f"{self.path} is on a read-only file system"
        mode = stat.filemode(self.mode)
        return f"{self.path} belongs to {user_name(self.owner)} ({mode}), and you may not write there"


def user_name(uid: int) -> str:
    """The name of a user, or `user 1234` if it has none, as in a container."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"


def denied_folders(project: Path, folders: tuple[str, ...] = WRITTEN_FOLDERS) -> list[DeniedPath]:
    """The folders that a run writes to but this user may not write to, each once."""
    found: dict[Path, DeniedPath] = {}
    for name in folders:
        if denied := _denied(project, project / name):
            found.setdefault(denied.path, denied)
    return list(found.values())


def check_access(project: Path, folders: tuple[str, ...] = WRITTEN_FOLDERS) -> None:
    """Raise PreflightError if this user may not write to one of the folders, before any call is paid for."""
    if denied := denied_folders(project, folders):
        raise PreflightError(f"{denied[0].problem}: {sharing_fix(project, denied)}")


def sharing_fix(project: Path, denied: list[DeniedPath]) -> str:
    """What to type, and who has to type it, because only the owner of a folder can share it."""
    if denied[0].is_read_only:
        return "mount it writable (in a container: as a writable volume), or work in a copy of the project"
    paths = [one.path for one in denied]
    highest = [path for path in paths if not any(parent in paths for parent in path.parents)]
    names = " ".join(shlex.quote(str(path)) for path in highest)
    owner = user_name(denied[0].owner)
    if all(one.is_in_our_group for one in denied):
        return f"ask {owner} to type: chmod -R g+rwX {names}; and to keep it so: umask 002"
    where = shlex.quote(str(project))
    return (
        f"ask {owner} to share it with a group that you are in: "
        f"chgrp -R GROUP {where} && chmod -R g+rwX {where} && find {where} -type d -exec chmod g+s {{}} +"
    )


def described(path: Path) -> DeniedPath:
    """Owner and mode of the path, or of the nearest folder above it that can be seen."""
    while True:
        with contextlib.suppress(OSError):
            found = path.stat()
            groups = {os.getegid(), *os.getgroups()}
            is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
            return DeniedPath(path, found.st_uid, found.st_mode, found.st_gid in groups, is_read_only)
        path = path.parent


def _denied(project: Path, folder: Path) -> DeniedPath | None:
    """The first path, from the project down to the folder, whose permissions are in the way; None if none are."""
    for path in (project, *reversed([one for one in folder.parents if project in one.parents]), folder):
        is_last = path == folder or not os.path.lexists(path / folder.relative_to(path).parts[0])
        needed = os.W_OK | os.X_OK if is_last else os.X_OK
        if path.is_dir() and not os.access(path, needed):
            return described(path)
        if is_last:
            return None
    return None
