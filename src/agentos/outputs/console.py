"""Turns the events of a run into lines of text, each prefixed with its item or the coordinator."""

from collections.abc import Callable

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_stats import RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.footer import time_left
from agentos.outputs.format import AnnouncedEvent, dollars, event_text, prefixed, tokens
from agentos.outputs.resume_command import Here, path_to_project
from agentos.outputs.summary import ending_lines, summary_lines

COORDINATOR = "[COORDINATOR]"
Write = Callable[[str], None]


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
        path = path_to_project(self.stats.started, self._here) if self.stats.started else ""
        for line in ending_lines(event, path):
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
