"""Canary keys, and a search for them in every encoding and in every place where a run leaves data."""

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
FORK_SERVER = "agentos.engines.template"
"""The gateway owns a key pool of its own, so its environment holds the keys legitimately."""
MEMORIES = 2
_BETWEEN = re.compile(rb"[\s\0\"',]+|\\[nrt]|\[(?:[A-Z]+-\d+|COORDINATOR)\]")
"""What may separate the parts of a secret that was split: white space, quotes, an output prefix."""


def forms(secret: str) -> set[bytes]:
    """The secret in every encoding searched for: plain, escaped, quoted, base64, hex, UTF-16, reversed."""
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
    """At every alignment within a longer text, without the ends, which depend on the neighbouring bytes."""
    shifted = [
        base64.b64encode(b"\0" * shift + raw).rstrip(b"=")[(0, 2, 3)[shift] : -2] for shift in range(3)
    ]
    thirty_two = [base64.b32encode(b"\0" * shift + raw).rstrip(b"=")[8:-4] for shift in range(5)]
    return {*shifted, *(part.replace(b"+", b"-").replace(b"/", b"_") for part in shifted), *thirty_two}


class Search:
    """Searches bytes, text and files for the given secrets."""

    def __init__(self, *secrets: str) -> None:
        self._forms = [form for secret in secrets for form in forms(secret)]
        self._plain = [secret[6:-6].encode(code) for secret in secrets for code in ("utf-8", "utf-16-le")]

    def __call__(self, content: bytes | str) -> list[bytes]:
        """The encoded secrets found, including ones split over lines, fields or strings."""
        raw = content.encode() if isinstance(content, str) else content
        joined = _BETWEEN.sub(b"", raw)
        return [form for form in self._forms if form in raw or form in joined]

    def plainly(self, content: bytes) -> bool:
        """Search for the plain secret only: fast enough for process memory."""
        return any(form in content for form in self._plain)

    def in_files(self, *folders: Path) -> int:
        """Assert that no file name and no file contains a secret; return the number of files read."""
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
    """Scans the processes and files of a run repeatedly until it ends."""

    running: RunningCommand
    search: Search
    folders: tuple[Path, ...] = ()
    files: int = 0
    scanned: int = 0
    environments: int = 0
    memories: int = 0
    hits: list[str] = field(default_factory=list)
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def scan_until_exit(self) -> None:
        while self.running.process.poll() is None:
            self._scan_files()
            # The coordinator was given the keys in its environment, so scan only its arguments.
            self._scan_process(self.running.pid, ("cmdline", "comm"))
            children = self.running.processes()
            for child in children:
                # Between fork and exec a child still is a copy of the coordinator.
                if command_line(child.pid) != command_line(self.running.pid):
                    self._scan_process(child.pid)
            # The coordinator's first child is the fork server: every worker inherits its memory.
            for child in children[:1] if self.memories < MEMORIES else ():
                if FORK_SERVER in command_line(child.pid):
                    self._scan_memory(child.pid)
            threading.Event().wait(0.15)

    def _scan_files(self) -> None:
        """Read every file whenever it has changed, to catch what is deleted before the run ends."""
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

    def _scan_process(self, pid: int, names: tuple[str, ...] = ("cmdline", "environ", "comm")) -> None:
        for name in names:
            try:
                content = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            self.scanned += bool(content)
            self.environments += name == "environ" and bool(content)
            if self.search(content):
                self.hits.append(f"{name} of {pid}")

    def _scan_memory(self, pid: int) -> None:
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
