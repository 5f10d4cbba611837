"""Draws docs/images/demo.svg from a real run: `.venv/bin/python docs/images/make_demo_svg.py`.

Runs `agentos demo` in a pseudo-terminal in a temporary folder and draws two of its screens in colour: while a key cools
down, and at the end. `make pictures` draws this picture and the timeline.
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
CHARACTER, LINE, MARGIN, TOP = 7.25, 17, 18, 40  # pixels
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
IN_PROGRESS = re.compile(r"^\[=+>.*[2-6]/10 workflows complete")
# Adjacent characters of one style: colour, bold, text.
Piece = tuple[str, bool, str]


@dataclass(frozen=True)
class Snapshot:
    """One screen and the title above it."""

    title: str
    rows: list[list[Piece]]


def record(folder: Path) -> list[Snapshot]:
    """The screen while three items run and a key cools down, and the last screen."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, terminal = pyte.ByteStream(screen), _start(folder)
    during: list[list[Piece]] = []
    while chunk := _read(terminal):
        stream.feed(chunk)
        during = during or (_rows(screen) if _is_interesting(screen.display) else [])
    assert during, "no key cooled down while three items were running"
    return [Snapshot("agentos demo", during), Snapshot("agentos demo, when it has ended", _rows(screen))]


def _is_interesting(rows: list[str]) -> bool:
    below = [row.rstrip() for row in rows if row.strip()][-5:]
    busy = sum(bool(re.match(r"  LLD-\d+ +N\d", row)) for row in below) == 3
    return (
        busy
        and any(IN_PROGRESS.match(row) for row in below)
        and re.search(r"(cooling down|resting|rate limited) until", below[-1]) is not None
    )


def _start(folder: Path) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        program = Path(sys.executable).parent / "agentos"
        environment = {
            # As for an installed agentos: the picture must not show paths of this machine.
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        os.execve(program, ["agentos", "demo"], environment)  # noqa: S606 - the program that is drawn
    return terminal


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def _rows(screen: Any) -> list[list[Piece]]:
    """The rows of the screen without empty ones at the end."""
    rows = [list(_pieces([screen.buffer[at][column] for column in range(COLUMNS)])) for at in range(ROWS)]
    while rows and not "".join(text for _, _, text in rows[-1]).strip():
        rows.pop()
    return rows


def _pieces(characters: list[Any]) -> Iterator[Piece]:
    for (colour, bold), run in itertools.groupby(
        characters, key=lambda character: (character.fg, character.bold)
    ):
        yield COLOURS.get(colour, TEXT), bold, "".join(character.data for character in run)


def draw(snapshots: list[Snapshot]) -> str:
    width, height = (
        COLUMNS * CHARACTER + 2 * MARGIN,
        sum(_height(snapshot) for snapshot in snapshots) + MARGIN,
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>agentos demo: ten issues, three at a time, one rate limit survived</title>",
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="12">',
            *_windows(snapshots, width),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _windows(snapshots: list[Snapshot], width: float) -> Iterator[str]:
    top = 0
    for snapshot in snapshots:
        height = _height(snapshot) - MARGIN
        yield f'<rect y="{top}" width="{width:.0f}" height="{height}" rx="8" fill="{FRAME}" stroke="{EDGE}"/>'
        for at, fill in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
            yield f'<circle cx="{MARGIN + 16 * at}" cy="{top + 16}" r="5" fill="{fill}"/>'
        yield (
            f'<text x="{width / 2:.0f}" y="{top + 20}" fill="#8b929e" text-anchor="middle">{escape(snapshot.title)}</text>'
        )
        for number, row in enumerate(snapshot.rows):
            yield from _line(row, top + TOP + number * LINE + 8)
        top += _height(snapshot)


def _height(snapshot: Snapshot) -> int:
    return TOP + len(snapshot.rows) * LINE + MARGIN


def _line(row: list[Piece], y: int) -> Iterator[str]:
    """Every piece at its column whatever the font; non-breaking spaces, because SVG collapses others."""
    column = 0
    for colour, bold, text in row:
        if text.strip():
            lead = len(text) - len(text.lstrip())
            x, visible = MARGIN + (column + lead) * CHARACTER, text.strip()
            weight = ' font-weight="bold"' if bold else ""
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} textLength="{len(visible) * CHARACTER:.1f}" '
                f'lengthAdjust="spacingAndGlyphs">{escape(visible.replace(" ", chr(160)))}</text>'
            )
        column += len(text)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        snapshots = record(Path(folder))
    (HERE / "demo.svg").write_text(draw(snapshots), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
