"""Turns the events of a run into lines of text, each prefixed with its item or the coordinator."""

from collections.abc import Callable, Iterable

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_stats import RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.footer import time_left
from agentos.outputs.format import AnnouncedEvent, dollars, event_text, prefixed, tokens
from agentos.outputs.resume_command import Here, path_to_project
from agentos.outputs.summary import ending_lines, summary_lines

COORDINATOR = "[COORDINATOR]"
MAX_HELD_LINES = 100_000  # of all items that wait for their turn; further lines are only in the logs
Write = Callable[[str], None]


class OutputOrder:
    """Holds the lines of each item back until all items before it have ended."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[str]] = {}
        self._over: set[str] = set()
        self._cut: set[str] = set()  # items whose further lines are only in their logs
        self._held = 0

    def start(self, items: Iterable[str]) -> None:
        self._waiting = {item: [] for item in items}

    def add(self, item: str, line: str) -> list[str]:
        """The lines to write now."""
        if item == next(iter(self._waiting), item) or item not in self._waiting:
            return [line]
        if item in self._cut:
            return []
        if self._held >= MAX_HELD_LINES:
            self._cut.add(item)
            line = f"[{item}] ... the rest is in its log: agentos logs {item}"
        self._waiting[item].append(line)
        self._held += 1
        return []

    def end(self, item: str) -> list[str]:
        """The lines to write now that the item has ended."""
        self._over.add(item)
        lines: list[str] = []
        while self._waiting:
            first = next(iter(self._waiting))
            lines += self._waiting[first]
            self._waiting[first] = []
            if first not in self._over:
                break
            del self._waiting[first]
        self._held -= len(lines)
        return lines

    def flush(self) -> list[str]:
        """All lines that are still held back, at the end of the run."""
        return [line for lines in self._waiting.values() for line in lines]


class Console:
    """A listener that passes each line to `write`, and the progress lines to `progress`.

    With `keep_order` the lines of an item are written after those of the items before it.
    """

    def __init__(
        self,
        write: Write,
        redact: Callable[[str], str],
        progress: Write,
        here: Here = None,
        *,
        keep_order: bool = False,
    ) -> None:
        self._order = OutputOrder() if keep_order else None
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
        if self._order and isinstance(event, events.RunStarted):
            self._order.start(event.items)
        match event:
            case events.LineWritten():
                self._write_item_line(event.item, event.text)
            case events.ItemEnded():
                self._write_item_end(event, at)
            case events.Heartbeat():
                self._write_progress_line(at)
            case events.RunEnded():
                for line in self._order.flush() if self._order else ():
                    self._write(line)
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
        path = path_to_project(self.stats.started, self._here) if self.stats.started else ""
        for line in ending_lines(event, path):
            self._write_item_line(event.item, line)
        for line in self._order.end(event.item) if self._order else ():
            self._write(line)
        if event.outcome.ending in (Ending.FINISHED, Ending.FAILED, Ending.PARKED):
            self._write_progress_line(at)

    def _write_progress_line(self, at: float) -> None:
        self._write_progress(self._redact(f"{COORDINATOR} {one_line(progress_line(self.stats, at))}"))

    def _write_item_line(self, item: str, text: str) -> None:
        line = self._redact(prefixed(f"[{item}]", text))
        for ready in self._order.add(item, line) if self._order else (line,):
            self._write(ready)

    def _write_line(self, prefix: str, text: str) -> None:
        self._write(self._redact(prefixed(prefix, text)))


def progress_line(stats: RunStats, at: float) -> str:
    """`[=====>    ] 5/10 workflows complete`, then running items, keys, tokens, cost and time left."""
    total = len(stats.rows)
    waiting = stats.waiting_for_keys
    running = ", ".join(f"{row.item} {row.node}".strip() for row in stats.running if row not in waiting)
    keys = len(stats.started.keys) if stats.started else 0
    parts = [
        f"{bar(stats.over, total)} {stats.over}/{total} workflows complete",
        "paused" if stats.paused else "",
        f"running: {running}" if running else "",
        f"waiting for a key: {', '.join(row.item for row in waiting)}" if waiting else "",
        f"keys in use: {len(set(stats.held.values()))}/{keys}" if keys else "",
        "" if stats.keyless else f"{tokens(stats.usage.tokens)} tokens",
        "" if stats.keyless else f"cost {dollars(stats.cost)}",
        time_left(stats, at),
    ]
    return " | ".join(part for part in parts if part)
