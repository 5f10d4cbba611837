"""Draws docs/images/demo.svg from a real run: `.venv/bin/python docs/images/make_demo_svg.py`.

Runs `agentos demo` in a pseudo-terminal, in a folder of its own, and draws two screens of it, colours and all: while a
key rests, and at the end. `make pictures` draws this and the timeline.
"""

import fcntl
import itertools
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pyte

HERE = Path(__file__).parent
COLUMNS, ROWS = 96, 28
CHARACTER, LINE, MARGIN, TOP = 7.25, 17, 18, 40
TEXT, FRAME, EDGE = "#d7dae0", "#1e2127", "#3a3f4b"
COLOURS = {
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "brightblue": "#82b7ff",
    "brightmagenta": "#dd9bf0",
    "brightcyan": "#7fd5dd",
}
AT_WORK = re.compile(r"^\[=+>.*[2-6]/10 workflows complete")
# Characters of a line that look alike: their colour, whether they are bold, what they say.
Piece = tuple[str, bool, str]


@dataclass(frozen=True)
class Shown:
    """One screen, and the words above it."""

    words: str
    rows: list[list[Piece]]


def record(folder: Path) -> list[Shown]:
    """The screen when three are at work while a key rests, and the one at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, terminal = pyte.ByteStream(screen), _start(folder)
    during: list[list[Piece]] = []
    while chunk := _read(terminal):
        stream.feed(chunk)
        during = during or (_rows(screen) if _is_telling(screen.display) else [])
    assert during, "no key rested while three items were at work"
    return [Shown("agentos demo", during), Shown("agentos demo, when it has ended", _rows(screen))]


def _is_telling(rows: list[str]) -> bool:
    below = [row.rstrip() for row in rows if row.strip()][-5:]
    busy = sum(bool(re.match(r"  LLD-\d+ +N\d", row)) for row in below) == 3
    return busy and any(AT_WORK.match(row) for row in below) and "resting until" in below[-1]


def _start(folder: Path) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        program = Path(sys.executable).parent / "agentos"
        around = {
            # As for somebody who has installed it: the picture is of no machine.
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        os.execve(program, ["agentos", "demo"], around)  # noqa: S606 - the program that is drawn
    return terminal


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def _rows(screen: Any) -> list[list[Piece]]:
    """Without empty rows at the end."""
    rows = [list(_pieces([screen.buffer[at][column] for column in range(COLUMNS)])) for at in range(ROWS)]
    while rows and not "".join(text for _, _, text in rows[-1]).strip():
        rows.pop()
    return rows


def _pieces(characters: list[Any]) -> Iterator[Piece]:
    for (colour, bold), run in itertools.groupby(characters, key=lambda one: (one.fg, one.bold)):
        yield COLOURS.get(colour, TEXT), bold, "".join(one.data for one in run)


def draw(shown: list[Shown]) -> str:
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, sum(_height(one) for one in shown) + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>agentos demo: ten issues, three at a time, one rate limit survived</title>",
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="12">',
            *_windows(shown, width),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _windows(shown: list[Shown], width: float) -> Iterator[str]:
    top = 0
    for one in shown:
        tall = _height(one) - MARGIN
        yield f'<rect y="{top}" width="{width:.0f}" height="{tall}" rx="8" fill="{FRAME}" stroke="{EDGE}"/>'
        for at, fill in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
            yield f'<circle cx="{MARGIN + 16 * at}" cy="{top + 16}" r="5" fill="{fill}"/>'
        yield (
            f'<text x="{width / 2:.0f}" y="{top + 20}" fill="#8b929e" text-anchor="middle">{escape(one.words)}</text>'
        )
        for number, row in enumerate(one.rows):
            yield from _line(row, top + TOP + number * LINE + 8)
        top += _height(one)


def _height(one: Shown) -> int:
    return TOP + len(one.rows) * LINE + MARGIN


def _line(row: list[Piece], y: int) -> Iterator[str]:
    """Each piece where its column is, whatever font there is; spaces that nobody takes for one."""
    column = 0
    for colour, bold, text in row:
        if text.strip():
            lead = len(text) - len(text.lstrip())
            x, said = MARGIN + (column + lead) * CHARACTER, text.strip()
            heavy = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="{colour}"{heavy} textLength="{len(said) * CHARACTER:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{escape(said.replace(" ", chr(160)))}</text>'
            )
        column += len(text)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        shown = record(Path(folder))
    (HERE / "demo.svg").write_text(draw(shown), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
