"""Draws docs/images/demo.svg from a real run: `.venv/bin/python docs/images/make_demo_svg.py`.

Runs `agentos demo` in a pseudo-terminal, in a folder of its own, and draws selected lines of what a person would
have read there.
Needs what `make docs` installs.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pyte

HERE = Path(__file__).parent
WIDTH, CHARACTER, LINE, MARGIN = 112, 7.25, 17, 18
SCREEN, ROWS = 240, 40
TEXT, QUIET = "#d7dae0", "#8b929e"
GAP = "..."


def record(folder: Path) -> list[str]:
    """Every line of a demo, as it stands on a screen that forgets nothing; what was wiped away is not there."""
    screen = pyte.HistoryScreen(SCREEN, ROWS, history=100_000, ratio=1.0)
    stream, terminal = pyte.ByteStream(screen), _start(folder)
    while chunk := _read(terminal):
        stream.feed(chunk)
    above = ["".join(row[at].data for at in range(SCREEN)) for row in screen.history.top]
    return [line.rstrip() for line in (*above, *screen.display)]


def _start(folder: Path) -> int:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, SCREEN, 0, 0))
        program = Path(sys.executable).parent / "agentos"
        os.execv(program, ["agentos", "demo"])  # noqa: S606 - the program that is drawn
    return terminal


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def select(lines: list[str]) -> list[str]:
    """The beginning, the rate limit, an item sent back, and the end."""
    limit = next(at for at, line in enumerate(lines) if "Rate limit hit" in line)
    end = next(at for at, line in enumerate(lines) if "Execution complete:" in line)
    rows = [line for line in lines if re.match(r"\[COORDINATOR\] LLD-\d+ ", line)]
    return [
        "$ make demo",
        *lines[:9],
        GAP,
        *lines[limit - 4 : limit + 5],
        GAP,
        *rows,
        *lines[end : end + 11],
    ]


def draw(lines: list[str]) -> str:
    width, height = WIDTH * CHARACTER + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
            f'viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>agentos demo: ten issues, three at a time, one rate limit survived</title>",
            f'<rect width="100%" height="100%" rx="8" fill="#1e2127"/>{_buttons()}',
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="12" '
            'xml:space="preserve" style="white-space:pre">',
            *_rows(lines),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _buttons() -> str:
    return "".join(
        f'<circle cx="{MARGIN + 16 * at}" cy="15" r="5" fill="{fill}"/>'
        for at, fill in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )


def _rows(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        shown = line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
        colour = QUIET if line == GAP else TEXT
        at = MARGIN + 10 + number * LINE
        yield f'<text x="{MARGIN}" y="{at}" fill="{colour}">{escape(shown)}</text>'


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        lines = record(Path(folder))
    (HERE / "demo.svg").write_text(draw(select(lines)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
