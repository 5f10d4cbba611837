"""Turns the events of a run into lines of text, each prefixed with its item or the coordinator."""

import re
import zlib
from collections.abc import Callable

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_stats import RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.footer import time_left
from agentos.outputs.format import AnnouncedEvent, dollars, event_text, prefixed, tokens
from agentos.outputs.resume_command import Here
from agentos.outputs.summary import ending_lines, summary_lines

COORDINATOR = "[COORDINATOR]"
Write = Callable[[str], None]


_PREFIX = re.compile(r"\[[A-Za-z0-9._-]+\]")
_ITEM_COLOURS = (33, 34, 35, 36, 32, 94, 95, 96)  # ANSI codes
_HIGHLIGHTED = re.compile(r"\b(SLOW|STALLED|PAUSED)\b|\[[=> ]{10}\]")


class Console:
    """A listener that passes each line to `write`, and the progress lines to `progress`."""

    def __init__(
        self, write: Write, redact: Callable[[str], str], progress: Write, here: Here = None
    ) -> None:
        self._write = write
        self._redact = redact
        self._write_progress = progress
        self._here = here
        self.stats = RunStats()

    def update_only(self, event: events.Event, at: float) -> None:
        """Count an event without printing anything."""
        self.stats.handle(event, at)

    def on_event(self, event: events.Event, at: float) -> None:
        self.stats.handle(event, at)
        match event:
            case events.LineWritten():
                self._write_line(f"[{event.item}]", event.text)
            case events.ItemEnded():
                self._write_item_end(event, at)
            case events.Heartbeat():
                self._write_progress_line(at)
            case events.RunEnded():
                for line in summary_lines(self.stats, self._here):
                    self._write_line(COORDINATOR, line)
            case _ if isinstance(event, AnnouncedEvent):
                if text := event_text(event, at, paused=self.stats.paused is not None):
                    self._write_line(COORDINATOR, text)
            case _:
                pass

    def close(self) -> None:
        pass

    def _write_item_end(self, event: events.ItemEnded, at: float) -> None:
        for line in ending_lines(event):
            self._write_line(f"[{event.item}]", line)
        if event.outcome.ending in (Ending.FINISHED, Ending.FAILED, Ending.PARKED):
            self._write_progress_line(at)

    def _write_progress_line(self, at: float) -> None:
        self._write_progress(self._redact(f"{COORDINATOR} {one_line(progress_line(self.stats, at))}"))

    def _write_line(self, prefix: str, text: str) -> None:
        self._write(self._redact(prefixed(prefix, text)))


def progress_line(stats: RunStats, at: float) -> str:
    """`[=====>    ] 5/10 workflows complete`, then running items, keys, tokens, cost and time left."""
    total = len(stats.rows)
    running = ", ".join(f"{row.item} {row.node}".strip() for row in stats.running)
    keys = len(stats.started.keys) if stats.started else 0
    parts = [
        f"{bar(stats.over, total)} {stats.over}/{total} workflows complete",
        "paused" if stats.paused else "",
        f"running: {running}" if running else "",
        f"keys in use: {len(set(stats.held.values()))}/{keys}" if keys else "",
        "" if stats.keyless else f"{tokens(stats.usage.tokens)} tokens",
        "" if stats.keyless else f"cost {dollars(stats.cost)}",
        time_left(stats, at),
    ]
    return " | ".join(part for part in parts if part)


def paint(line: str) -> str:
    """Colour a line's prefix by its item, and a failure red."""
    found = _PREFIX.match(line)
    if not found:
        return line
    prefix, rest = found[0], line[found.end() :]
    colour = _ITEM_COLOURS[zlib.crc32(prefix.encode()) % len(_ITEM_COLOURS)]
    colour = 1 if prefix == "[COORDINATOR]" else colour
    if rest.startswith(" FAILED:"):
        rest = f"\x1b[31m{rest}\x1b[0m"
    return f"\x1b[{colour}m{prefix}\x1b[0m{rest}"


def paint_row(row: str) -> str:
    """Colour a row of the footer: the bar green, warnings yellow or red."""

    def coloured(found: re.Match[str]) -> str:
        colour = 31 if found[1] == "STALLED" else 33 if found[1] else 32
        return f"\x1b[{colour}m{found[0]}\x1b[0m"

    return _HIGHLIGHTED.sub(coloured, row)


def unpainted(line: str) -> str:
    return line
