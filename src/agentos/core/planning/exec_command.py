"""Items of `agentos exec`: their ids, and the command line to run for each of them."""

import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentos.core.planning.items import Column, Item, is_safe_id
from agentos.core.planning.worker_task import Variable
from agentos.core.text.values import without_accents

MAX_ID_LENGTH = 64  # characters
TEMPORARY_FAILURE = 75
"""EX_TEMPFAIL of sysexits.h: the program asks to be run again."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_EXEC_NAME = re.compile("exec-[0-9a-f]{8}")
_PLACEHOLDER = re.compile(r"\{\{([\w .#/-]*)\}\}|\{([\w .#/-]*)\}")
PLACEHOLDERS = ("item", "id", "name", "stem", "folder", "number")
# As in GNU parallel: the item without its suffix, its file name, its folder, its stem, its number.
_GNU_PLACEHOLDERS = (".", "/", "//", "/.", "#")


class WorkspaceKind(StrEnum):
    """Where an item's program works: in a git worktree (`--worktree`) or in a copy (`--copy`)."""

    WORKTREE = "worktree"
    COPY = "copy"

    @property
    def folder(self) -> str:
        """The folder in the home that holds these workspaces."""
        return "worktrees" if self is WorkspaceKind.WORKTREE else "copies"


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """Where the workspaces of a project are, and what they start from.

    source: the top folder of the repository, or the project to copy
    folder: where the workspaces are kept
    prefix: the project's path inside the repository; empty if it is the repository
    base, base_commit: the branch that worktrees start from, and its commit when the run began
    """

    kind: WorkspaceKind
    source: str
    folder: str
    prefix: str = ""
    base: str = ""
    base_commit: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What the sandbox of a program hides and lets through.

    home: the home of agentos, which contains the keys
    user_home: the user's home folder
    project: the project, or the repository that its worktrees belong to
    gateway_port: the port of the gateway, the only network; 0 for none
    agent_folders: settings of coding agents, which the agents also write
    """

    home: str
    user_home: str
    project: str
    gateway_port: int = 0
    agent_folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecTask:
    """The start message of an exec worker: the command, its item, and where to record that it is done.

    `coordinator` is the process id of the coordinator; `run` is the id of its run.
    """

    run: str
    coordinator: int
    item: Item
    command: tuple[str, ...]
    working_dir: str
    records_dir: str
    variables: tuple[Variable, ...] = ()
    retry_codes: tuple[int, ...] = (TEMPORARY_FAILURE,)
    retry_any: bool = False
    redo: bool = False
    workspace: WorkspaceSpec | None = None
    sandbox: SandboxSpec | None = None


def workflow_name(command: Sequence[str]) -> str:
    """A name for the command that does not depend on its items."""
    return f"exec-{_digest(chr(0).join(command))[:8]}"


def is_exec(workflow: str) -> bool:
    """Whether this is the name of a command of `agentos exec`."""
    return _EXEC_NAME.fullmatch(workflow) is not None


def record_name(source: str) -> str:
    """The name of an item's record files. Not the item's id, which depends on the other items."""
    return _digest(source)[:32]


def exec_items(
    sources: Iterable[str], workflow: str, columns: Mapping[str, tuple[Column, ...]] | None = None
) -> list[Item]:
    """One item per distinct source, in order; `columns` has the row of each item that comes from a table."""
    rows = columns or {}
    unique = list(dict.fromkeys(sources))
    ids = _ids(unique)
    return [
        Item(ids[source], workflow, number, source, source, columns=rows.get(source, ()))
        for number, source in enumerate(unique, 1)
    ]


def render_command(command: Sequence[str], item: Item, gateway: str = "") -> tuple[str, ...]:
    """The command for one item; without a placeholder, the item is appended as the last argument.

    `{gateway}` becomes the gateway's address; without a gateway it is left as it is.
    """
    names = {column.name for column in item.columns}
    if not any(has_placeholder(argument, names) for argument in command):
        command = [*command, "{item}"]
    values = _values(item) | ({"gateway": gateway} if gateway else {})
    return tuple(
        _PLACEHOLDER.sub(lambda match: _substituted(match, values), argument) for argument in command
    )


def has_placeholder(argument: str, columns: Collection[str] = ()) -> bool:
    """Whether an argument contains a placeholder for the item or one of its parts."""
    found = (match[2] for match in _PLACEHOLDER.finditer(argument) if match[2] is not None)
    return any(
        name.removeprefix("item.") in ("", "suffix", *PLACEHOLDERS, *_GNU_PLACEHOLDERS, *columns)
        for name in found
    )


def _substituted(match: "re.Match[str]", values: dict[str, str]) -> str:
    """`{item}` becomes the item, `{{item}}` becomes `{item}`; braces around anything else are left alone."""
    if match[1] is not None:
        return match[0][1:-1] if match[1] in values else match[0]
    return values.get(match[2], match[0])


def _values(item: Item) -> dict[str, str]:
    folder, name = posixpath.split(item.source)
    stem, suffix = posixpath.splitext(name)
    parts = {
        "id": item.id,
        "name": name,
        "stem": stem,
        "suffix": suffix,
        "folder": folder or ".",
        "number": str(item.number),
    }
    # A column takes precedence over a part of the same name, which is still available as {item.name}.
    return {
        "": item.source,
        ".": posixpath.splitext(item.source)[0],
        "/": name,
        "//": folder or ".",
        "/.": stem,
        "#": str(item.number),
        **parts,
        **{f"item.{part}": value for part, value in parts.items()},
        **{column.name: column.value for column in item.columns},
        "item": item.source,
    }


def _ids(sources: list[str]) -> dict[str, str]:
    """An id per source: the file name without its suffix, or the whole path if file names clash."""
    short = {
        source: _safe(posixpath.splitext(posixpath.basename(source.rstrip("/")))[0]) for source in sources
    }
    counts = Counter(name.casefold() for name in short.values())
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for source in sources:
        wanted = short[source] if counts[short[source].casefold()] == 1 else _safe(source)
        ids[source] = _unused(wanted, taken)
        taken.add(ids[source].casefold())
    return ids


def _unused(wanted: str, taken: set[str]) -> str:
    """Append a number until the id is unused. Case is ignored: ids name files, also on case-insensitive disks."""
    number, name = 1, wanted
    while name.casefold() in taken:
        number += 1
        name = f"{wanted[: MAX_ID_LENGTH - 8]}-{number}"
    return name


def _safe(text: str) -> str:
    """The text as an id. If it has letters that an id cannot contain, a hash is appended to keep the id unique."""
    plain = without_accents(text)
    name = _UNSAFE.sub("-", plain).strip("-.")[:MAX_ID_LENGTH].rstrip("-.")
    if any(char.isalpha() and not char.isascii() for char in plain):
        name = f"{name[: MAX_ID_LENGTH - 9] or 'item'}-{_digest(text)[:8]}"
    if name.casefold() == "coordinator":  # the prefix of the run's own output lines
        name = f"item-{name}"
    return name if is_safe_id(name) else f"item-{_digest(text)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
