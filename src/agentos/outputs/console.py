"""The plain display: whole lines, each with the name of who speaks."""

from collections.abc import Callable

from agentos.core import events
from agentos.core.lines import one_line
from agentos.core.results import Ending
from agentos.core.tally import Tally, bar
from agentos.outputs.again import Here
from agentos.outputs.footer import time_left
from agentos.outputs.summary import ending_lines, summary_lines
from agentos.outputs.words import Told, dollars, sentence, spoken, tokens

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
        self.tally = Tally()

    def learn(self, event: events.Event, at: float) -> None:
        """Counts it, and says nothing."""
        self.tally.hear(event, at)

    def hear(self, event: events.Event, at: float) -> None:
        self.tally.hear(event, at)
        match event:
            case events.LineWritten():
                self._say(f"[{event.item}]", event.text)
            case events.ItemEnded():
                self._hear_end(event, at)
            case events.Heartbeat():
                self._progress(at)
            case events.RunEnded():
                for line in summary_lines(self.tally, self._here):
                    self._say(COORDINATOR, line)
            case _ if isinstance(event, Told):
                if text := sentence(event, at, paused=self.tally.paused is not None):
                    self._say(COORDINATOR, text)
            case _:
                pass

    def close(self) -> None:
        pass

    def _hear_end(self, event: events.ItemEnded, at: float) -> None:
        for line in ending_lines(event):
            self._say(f"[{event.item}]", line)
        if event.outcome.ending in (Ending.FINISHED, Ending.FAILED, Ending.PARKED):
            self._progress(at)

    def _progress(self, at: float) -> None:
        self._write_progress(self._redact(f"{COORDINATOR} {one_line(progress_line(self.tally, at))}"))

    def _say(self, prefix: str, text: str) -> None:
        self._write(self._redact(spoken(prefix, text)))


def progress_line(tally: Tally, at: float) -> str:
    """`[=====>    ] 5/10 workflows complete`, then what is worth knowing now."""
    total = len(tally.rows)
    running = ", ".join(f"{row.item} {row.node}".strip() for row in tally.running)
    keys = len(tally.started.keys) if tally.started else 0
    parts = [
        f"{bar(tally.over, total)} {tally.over}/{total} workflows complete",
        "paused" if tally.paused else "",
        f"running: {running}" if running else "",
        f"keys in use: {len(set(tally.held.values()))}/{keys}" if keys else "",
        "" if tally.keyless else f"{tokens(tally.usage.tokens)} tokens",
        "" if tally.keyless else f"cost {dollars(tally.cost)}",
        time_left(tally, at),
    ]
    return " | ".join(part for part in parts if part)
