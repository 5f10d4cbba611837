"""summary.json, written when the run has ended."""

from collections.abc import Callable

from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.summary import summary_text


class SummaryFile:
    """A listener; `write` puts the whole text in its place at once."""

    def __init__(
        self, write: Callable[[str], None], redact: Callable[[str], str], warn: Callable[[OSError], None]
    ) -> None:
        self._write = write
        self._redact = redact
        self._warn = warn
        self._stats = RunStats()

    def on_event(self, event: events.Event, at: float) -> None:
        self._stats.handle(event, at)
        if isinstance(event, events.RunEnded):
            try:
                self._write(self._redact(summary_text(self._stats)))
            except OSError as error:
                self._warn(error)

    def close(self) -> None:
        pass
