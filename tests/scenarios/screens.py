"""A terminal emulator over a pseudo-terminal: the visible screen and the scrollback."""

import fcntl
import shutil
import struct
import termios
from dataclasses import dataclass, field
from typing import Any

import pyte

from .harness import RunHarness, Terminal, wait_until

OLD = {"XTERM_VERSION": "XTerm(390)"}
WIDE = (100, 24)


@dataclass(slots=True)
class Screen:
    """An emulated screen; like xterm, it does not rewrap lines when it becomes narrower."""

    terminal: Terminal
    columns: int = 100
    lines: int = 24
    _fed: int = 0
    _screen: Any = field(init=False)
    _stream: Any = field(init=False)

    def __post_init__(self) -> None:
        self._screen = pyte.HistoryScreen(self.columns, self.lines, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)

    def rows(self) -> list[str]:
        """The visible rows, without trailing empty ones."""
        written = self.terminal.written
        self._stream.feed(written[self._fed :])
        self._fed = len(written)
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip().split("\n")

    def scrolled(self) -> list[str]:
        """The rows that have scrolled off the top."""
        self.rows()
        rows = self._screen.history.top
        return ["".join(row[column].data for column in range(self.columns)).rstrip() for row in rows]

    def everything(self) -> list[str]:
        return [*self.scrolled(), *self.rows()]

    def footer(self) -> list[str]:
        """The rows from the first running item, or the progress bar, to the end."""
        rows = self.rows()
        first = next(
            (n for n, row in enumerate(rows) if row.startswith(("  LLD-", "  ... and", "[=", "[>"))),
            len(rows),
        )
        return rows[first:]

    def wait_for(self, text: str, seconds: float = 15.0) -> None:
        wait_until(lambda: any(text in row for row in self.rows()), seconds)

    def colours(self) -> set[str]:
        self.rows()
        buffer = self._screen.buffer
        return {buffer[row][column].fg for row in range(self.lines) for column in range(self.columns)}

    def resize(self, columns: int, lines: int) -> None:
        self.rows()
        self.columns, self.lines = columns, lines
        self._screen.resize(lines, columns)
        fcntl.ioctl(self.terminal.keyboard, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))


class Shell:
    """An interactive bash in a terminal, with job control."""

    def __init__(self, harness: RunHarness, **env: str) -> None:
        self.terminal: Terminal = harness.terminal(
            "--norc",
            "--noprofile",
            "-i",
            program=shutil.which("bash") or "bash",
            size=WIDE,
            PS1="$ ",
            **OLD,
            **env,
        )
        self.screen = Screen(self.terminal)
        self.screen.wait_for("$")

    def type(self, line: str) -> None:
        self.terminal.press(f"{line}\n")
