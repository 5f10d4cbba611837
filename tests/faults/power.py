"""A simulated disk that loses unsynced data: replays a recorded run up to any call, then cuts the power."""

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
    """Which directory entries survive a power cut: the last synced ones, or the latest. Both can happen."""

    SYNCED = "synced"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Call:
    operation: str
    path: str
    target: str
    offset: int
    data: bytes


def read_record(path: Path) -> Iterator[Call]:
    """All recorded calls, in order."""
    with open(path, "rb") as file:
        while head := file.readline():
            operation, path_text, target, offset, size = head.decode().rstrip("\n").split("\t")
            yield Call(operation, path_text, target, int(offset), file.read(int(size)))


class Disk:
    """All files below `roots`; files that existed before the recording count as synced."""

    def __init__(self, *roots: Path) -> None:
        self._top = Tree()
        for root in roots:
            self._load(root)

    def apply(self, call: Call) -> None:  # noqa: C901 - one case per call
        match call.operation:
            case "create":
                self._folder(call.path).entries[_name(call.path)] = File()
            case "mkdir":
                # The run may create a root itself; its parent folder is not recorded.
                self._folder(call.path).entries.setdefault(_name(call.path), Tree())
            case "write":
                if file := self._file(call.path):
                    file.content.extend(bytes(max(0, call.offset - len(file.content))))
                    file.content[call.offset : call.offset + len(call.data)] = call.data
            case "truncate":
                if file := self._file(call.path):
                    del file.content[call.offset :]
            case "rename":
                if moved := self._folder(call.path).entries.pop(_name(call.path), None):
                    self._folder(call.target).entries[_name(call.target)] = moved
            case "unlink":
                self._folder(call.path).entries.pop(_name(call.path), None)
            case "sync":
                self._sync(call.path)
            case _:
                pass

    def cut(self, target: Path, names: Names) -> None:
        """Write what survives a power cut into `target`."""
        _write(self._top, target, names)

    def _sync(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, File):
            node.synced = bytes(node.content)
        elif node is not None:
            node.synced = dict(node.entries)

    def _find(self, path: str) -> File | Tree | None:
        node: File | Tree | None = self._top
        for part in path.strip("/").split("/"):
            node = node.entries.get(part) if isinstance(node, Tree) else None
        return node

    def _file(self, path: str) -> File | None:
        node = self._find(path)
        return node if isinstance(node, File) else None

    def _folder(self, path: str) -> Tree:
        node = self._find(os.path.dirname(path))
        assert isinstance(node, Tree), path
        return node

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


def sent_events(call: Call) -> list[dict[str, object]]:
    """The events that a worker sent to its coordinator with this call."""
    lines = call.data.splitlines() if call.operation == "send" else []
    return [json.loads(line) for line in lines if line.startswith(b'{"type":"') and line.endswith(b"}")]


def _name(path: str) -> str:
    return os.path.basename(path)


def _write(tree: Tree, target: Path, names: Names) -> None:
    target.mkdir(exist_ok=True)
    for name, node in (tree.synced if names is Names.SYNCED else tree.entries).items():
        if isinstance(node, Tree):
            _write(node, target / name, names)
        else:
            (target / name).write_bytes(node.synced)
