"""The plain display: whole lines, each with the name of who speaks."""

from collections.abc import Callable

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending
from agentos.core.run_state.run_stats import RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.footer import time_left
from agentos.outputs.format import Told, dollars, event_text, prefixed, tokens
from agentos.outputs.resume_command import Here
from agentos.outputs.summary import ending_lines, summary_lines

COORDINATOR = "[COORDINATOR]"
Write = Callable[[str], None]


class Console:
    """A listener; `write` takes one whole line, `progress` those that say how far it has come."""

    def __init__(
        self, write: Write, redact: Callable[[str], str], progress: Write, here: Here = None
    ) -> None:
        self._write = write
        self._redact = redact
        self._write_progress = progress
        self._here = here
        self.stats = RunStats()

    def update_only(self, event: events.Event, at: float) -> None:
        """Counts it, and says nothing."""
        self.stats.handle(event, at)

    def on_event(self, event: events.Event, at: float) -> None:
        self.stats.handle(event, at)
        match event:
            case events.LineWritten():
                self._say(f"[{event.item}]", event.text)
            case events.ItemEnded():
                self._write_item_end(event, at)
            case events.Heartbeat():
                self._progress(at)
            case events.RunEnded():
                for line in summary_lines(self.stats, self._here):
                    self._say(COORDINATOR, line)
            case _ if isinstance(event, Told):
                if text := event_text(event, at, paused=self.stats.paused is not None):
                    self._say(COORDINATOR, text)
            case _:
                pass

    def close(self) -> None:
        pass

    def _write_item_end(self, event: events.ItemEnded, at: float) -> None:
        for line in ending_lines(event):
            self._say(f"[{event.item}]", line)
        if event.outcome.ending in (Ending.FINISHED, Ending.FAILED, Ending.PARKED):
            self._progress(at)

    def _progress(self, at: float) -> None:
        self._write_progress(self._redact(f"{COORDINATOR} {one_line(progress_line(self.stats, at))}"))

    def _say(self, prefix: str, text: str) -> None:
        self._write(self._redact(prefixed(prefix, text)))


def progress_line(stats: RunStats, at: float) -> str:
    """`[=====>    ] 5/10 workflows complete`, then what is worth knowing now."""
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
