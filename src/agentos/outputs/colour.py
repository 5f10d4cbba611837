"""Colours by meaning: approved green, needs revision yellow, failed red, limited magenta. No meaning is in colour
alone."""

import contextlib
import os
import re
import zlib
from collections.abc import Callable

from agentos.config.settings import TerminalInfo, terminal_info

Paint = Callable[[str], str]

_RED, _GREEN, _YELLOW, _MAGENTA = 31, 32, 33, 35  # ANSI codes
_BOLD = 1
_ITEM_COLOURS = (34, 36, 94, 96)
"""The colours of items' prefixes; none of them has a meaning."""
_PREFIX = re.compile(r"\[[A-Za-z0-9._-]+\]")
_ENDING = re.compile(r" (?:FAILED:.*|(?:Approved|Needs revision)(?= after )|Parked(?= at ))")
# A count of zero stays plain, and so do flags such as --failed.
_NONZERO = r"(?<!\b0 )(?<![-\w])"
_MEANINGS = {
    _RED: rf"FAIL(?:ED)?\b|STALLED\b|{_NONZERO}(?:failed|killed|quarantined)\b(?! items:)|Failed: [1-9]\d*",
    _YELLOW: rf"SLOW\b|PAUSED\b|WARN\b|{_NONZERO}(?:[Nn]eeds? revision|interrupted|waiting for a person)\b",
    _MAGENTA: rf"{_NONZERO}(?:(?:all keys )?[Rr]ate limited|[Rr]ate limit hit|exhausted|at their limits?|wait(?:s|ing) for a key)\b",
    _GREEN: rf"{_NONZERO}(?:[Aa]pproved|available)\b|\[[=> ]{{10}}\]",
}
_WORD = re.compile("|".join(f"(?P<c{code}>{pattern})" for code, pattern in _MEANINGS.items()))


def wants_colours(descriptor: int, info: TerminalInfo) -> bool:
    """Whether the environment asks for colours, or else whether the output is a capable terminal."""
    if info.colours is not None:
        return info.colours
    return is_terminal(descriptor) and not info.is_simple


def painter(descriptor: int = 1) -> Paint:
    """`paint_text` if this output should have colours, otherwise a function that changes nothing."""
    return paint_text if wants_colours(descriptor, terminal_info()) else unpainted


def is_terminal(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False


def paint(line: str) -> str:
    """Colour a line's prefix by its item and the rest by its meaning; an item's own output is left unchanged."""
    found = _PREFIX.match(line)
    if not found:
        return line
    prefix, rest = found[0], line[found.end() :]
    if prefix == "[COORDINATOR]":
        return _coloured(_BOLD, prefix) + paint_text(rest)
    colour = _ITEM_COLOURS[zlib.crc32(prefix.encode()) % len(_ITEM_COLOURS)]
    if ending := _ENDING.match(rest):
        rest = paint_text(ending[0]) if ending[0][1:7] != "FAILED" else _coloured(_RED, ending[0])
        rest += line[found.end() + ending.end() :]
    return _coloured(colour, prefix) + rest


def paint_text(text: str) -> str:
    """Colour the words for results and states in a text that we wrote."""
    return _WORD.sub(lambda found: _coloured(int(str(found.lastgroup)[1:]), found[0]), text)


def unpainted(line: str) -> str:
    return line


def _coloured(colour: int, text: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"
