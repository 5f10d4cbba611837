"""A disk that forgets what was not synced: replays a recorded run up to any call, and cuts the power."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


@dataclass(slots=True)
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass(slots=True)
class Tree:
    entries: "dict[str, File | Tree]" = field(default_factory=dict)
    synced: "dict[str, File | Tree]" = field(default_factory=dict)


class Names(Enum):
    """After a cut, names are as they were last synced, or as they were last: both may happen."""

    SYNCED = "synced"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Call:
    what: str
    path: str
    other: str
    at: int
    data: bytes


def read_record(path: Path) -> Iterator[Call]:
    """Every call, in order."""
    with open(path, "rb") as file:
        while head := file.readline():
            what, name, other, at, size = head.decode().rstrip("\n").split("\t")
            yield Call(what, name, other, int(at), file.read(int(size)))


class Disk:
    """Everything below `roots`; what was there before the recording is synced."""

    def __init__(self, *roots: Path) -> None:
        self._top = Tree()
        for root in roots:
            self._load(root)

    def apply(self, call: Call) -> None:  # noqa: C901 - one case a call
        match call.what:
            case "create":
                self._folder(call.path).entries[_last(call.path)] = File()
            case "mkdir":
                # A root may be made in the course of it; the folder around it is not watched.
                self._folder(call.path).entries.setdefault(_last(call.path), Tree())
            case "write":
                if file := self._file(call.path):
                    file.content.extend(bytes(max(0, call.at - len(file.content))))
                    file.content[call.at : call.at + len(call.data)] = call.data
            case "truncate":
                if file := self._file(call.path):
                    del file.content[call.at :]
            case "rename":
                if moved := self._folder(call.path).entries.pop(_last(call.path), None):
                    self._folder(call.other).entries[_last(call.other)] = moved
            case "unlink":
                self._folder(call.path).entries.pop(_last(call.path), None)
            case "sync":
                self._sync(call.path)
            case _:
                pass

    def cut(self, target: Path, names: Names) -> None:
        """Writes what is left after the power is gone below another folder."""
        _write(self._top, target, names)

    def _sync(self, path: str) -> None:
        found = self._find(path)
        if isinstance(found, File):
            found.synced = bytes(found.content)
        elif found is not None:
            found.synced = dict(found.entries)

    def _find(self, path: str) -> File | Tree | None:
        found: File | Tree | None = self._top
        for part in path.strip("/").split("/"):
            found = found.entries.get(part) if isinstance(found, Tree) else None
        return found

    def _file(self, path: str) -> File | None:
        found = self._find(path)
        return found if isinstance(found, File) else None

    def _folder(self, path: str) -> Tree:
        found = self._find(os.path.dirname(path))
        assert isinstance(found, Tree), path
        return found

    def _load(self, root: Path) -> None:
        tree = self._top
        for part in str(root).strip("/").split("/"):
            inner = tree.entries.setdefault(part, Tree())
            tree.synced[part] = inner
            assert isinstance(inner, Tree)
            tree = inner
        for path in sorted(root.rglob("*")) if root.exists() else []:
            content = path.read_bytes() if path.is_file() else b""
            node = Tree() if path.is_dir() else File(bytearray(content), content)
            folder = self._folder(str(path))
            folder.entries[path.name] = folder.synced[path.name] = node


def told(call: Call) -> list[dict[str, object]]:
    """The events in what a worker has told its coordinator."""
    lines = call.data.splitlines() if call.what == "told" else []
    return [json.loads(line) for line in lines if line.startswith(b'{"type":"') and line.endswith(b"}")]


def _last(path: str) -> str:
    return os.path.basename(path)


def _write(tree: Tree, target: Path, names: Names) -> None:
    target.mkdir(exist_ok=True)
    for name, node in (tree.synced if names is Names.SYNCED else tree.entries).items():
        if isinstance(node, Tree):
            _write(node, target / name, names)
        else:
            (target / name).write_bytes(node.synced)
