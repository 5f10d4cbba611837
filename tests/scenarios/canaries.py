"""Keys that are searched for, in every form in which they might be written, wherever a run leaves something."""

import base64
import html
import json
import os
import re
import stat
import threading
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from .harness import RunningCommand, command_line

KEYS = tuple(f"AIza+Canary/{word}&%=9Qz7-{word}" for word in ("ash", "birch", "cedar", "elder"))
TEMPLATE = "agentos.engines.template"
GATEWAY = "agentos gateway"
"""Owns a pool as the coordinator does, and gets the keys as it does."""
MEMORIES = 2
_BETWEEN = re.compile(rb"[\s\0\"',]+|\\[nrt]|\[(?:[A-Z]+-\d+|COORDINATOR)\]")
"""What may stand between two parts of a secret that was split: white space, quotes, the name of a speaker."""


def forms(secret: str) -> set[bytes]:
    """The secret as it might be written: plain, escaped, quoted, in base64, hex and two bytes a character."""
    raw = secret.encode()
    escaped = "".join(char if char.isalnum() else f"\\u{ord(char):04x}" for char in secret)
    return {
        raw,
        raw[6:-6],
        json.dumps(secret)[1:-1].encode(),
        escaped.encode(),
        escaped.replace("\\u00", "\\x").encode(),
        html.escape(secret).encode(),
        urllib.parse.quote(secret, safe="").encode(),
        urllib.parse.quote(secret).encode(),
        urllib.parse.quote_plus(secret).encode(),
        urllib.parse.quote(urllib.parse.quote(secret, safe=""), safe="").encode(),
        raw.hex().encode(),
        raw.hex().upper().encode(),
        raw.hex(":").encode(),
        secret.encode("utf-16-le"),
        secret.encode("utf-16-be"),
        raw[::-1],
        *_in_base64(raw),
    }


def _in_base64(raw: bytes) -> set[bytes]:
    """Wherever in a longer text it stands; the ends, which depend on what is around, are left off."""
    shifted = [
        base64.b64encode(b"\0" * shift + raw).rstrip(b"=")[(0, 2, 3)[shift] : -2] for shift in range(3)
    ]
    thirty_two = [base64.b32encode(b"\0" * shift + raw).rstrip(b"=")[8:-4] for shift in range(5)]
    return {*shifted, *(part.replace(b"+", b"-").replace(b"/", b"_") for part in shifted), *thirty_two}


class Search:
    """Looks for secrets in anything."""

    def __init__(self, *secrets: str) -> None:
        self._forms = [form for secret in secrets for form in forms(secret)]
        self._plain = [secret[6:-6].encode(code) for secret in secrets for code in ("utf-8", "utf-16-le")]

    def __call__(self, content: bytes | str) -> list[bytes]:
        """The forms that are there, also split over lines, fields or strings."""
        raw = content.encode() if isinstance(content, str) else content
        joined = _BETWEEN.sub(b"", raw)
        return [form for form in self._forms if form in raw or form in joined]

    def plainly(self, content: bytes) -> bool:
        """Only as it is: for memory, of which there is much."""
        return any(form in content for form in self._plain)

    def in_files(self, *folders: Path) -> int:
        """How many files were read; none may have a secret, in its name or in its text."""
        scanned = 0
        for folder in folders:
            for path in folder.rglob("*"):
                assert not self(os.fsencode(path))
                if path.is_symlink():
                    assert not self(os.fsencode(path.readlink()))
                elif path.is_file():
                    content = path.read_bytes()
                    assert not self(content), path
                    scanned += bool(content)
        return scanned


@dataclass
class Scan:
    """Looks at the processes of a run and at its files, again and again, until it has ended."""

    running: RunningCommand
    search: Search
    folders: tuple[Path, ...] = ()
    files: int = 0
    scanned: int = 0
    environments: int = 0
    memories: int = 0
    hits: list[str] = field(default_factory=list)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def follow(self) -> None:
        while self.running.process.poll() is None:
            self._look_at_files()
            # Of the coordinator, which was given the keys in its environment, the arguments alone.
            self._look(self.running.pid, ("cmdline", "comm"))
            markers = self.running.processes()
            for mark in markers:
                if GATEWAY not in command_line(mark.pid):
                    self._look(mark.pid)
            # The first below the coordinator; what it has in its memory, every worker would have too.
            for mark in markers[:1] if self.memories < MEMORIES else ():
                if TEMPLATE in command_line(mark.pid):
                    self._look_inside(mark.pid)
            threading.Event().wait(0.15)

    def _look_at_files(self) -> None:
        """Each as often as it is another than before: what is gone after the run is found here."""
        for path in (path for folder in self.folders for path in folder.rglob("*")):
            try:
                state = path.lstat()
                if not stat.S_ISREG(state.st_mode) or self._seen.get(str(path)) == _version(state):
                    continue
                self._seen[str(path)] = _version(state)
                content = path.read_bytes()
            except OSError:
                continue
            self.files += bool(content)
            if self.search(content) or self.search(os.fsencode(path)):
                self.hits.append(f"{path} during the run")

    def _look(self, pid: int, names: tuple[str, ...] = ("cmdline", "environ", "comm")) -> None:
        for name in names:
            try:
                content = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            self.scanned += bool(content)
            self.environments += name == "environ" and bool(content)
            if self.search(content):
                self.hits.append(f"{name} of {pid}")

    def _look_inside(self, pid: int) -> None:
        size = 0
        try:
            areas = Path(f"/proc/{pid}/maps").read_text().splitlines()
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                for area in (area.split() for area in areas):
                    start, end = (int(part, 16) for part in area[0].split("-"))
                    if area[1].startswith("rw") and "[vvar" not in area[-1]:
                        memory.seek(start)
                        content = memory.read(end - start) or b""
                        size += len(content)
                        if self.search.plainly(content):
                            self.hits.append(f"memory of {pid}")
        except OSError:
            return
        self.memories += size > 1_000_000


def _version(state: os.stat_result) -> tuple[int, int]:
    return state.st_mtime_ns, state.st_size
