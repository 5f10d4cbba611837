"""Colours for whoever wants them."""

import re
import zlib

_PREFIX = re.compile(r"\[[A-Za-z0-9._-]+\]")
_ITEMS = (33, 34, 35, 36, 32, 94, 95, 96)
_WORDS = re.compile(r"\b(SLOW|STALLED|PAUSED)\b|\[[=> ]{10}\]")


def paint(line: str) -> str:
    """A line by who speaks, and red where something failed."""
    found = _PREFIX.match(line)
    if not found:
        return line
    prefix, rest = found[0], line[found.end() :]
    number = 1 if prefix == "[COORDINATOR]" else _ITEMS[zlib.crc32(prefix.encode()) % len(_ITEMS)]
    if rest.startswith(" FAILED:"):
        rest = f"\x1b[31m{rest}\x1b[0m"
    return f"\x1b[{number}m{prefix}\x1b[0m{rest}"


def paint_row(row: str) -> str:
    """A row below the lines: what is wrong, and the bar."""
    return _WORDS.sub(
        lambda found: f"\x1b[{31 if found[1] == 'STALLED' else 33 if found[1] else 32}m{found[0]}\x1b[0m", row
    )


def plain(line: str) -> str:
    return line
