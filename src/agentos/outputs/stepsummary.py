"""The report of a run in the place where GitHub's CI shows it."""

from collections.abc import Callable
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.markdown import markdown

# GitHub shows nothing at all of a step whose summary is larger than 1 MiB.
LARGEST = 1024 * 1024


class StepSummary:
    """A listener; what cannot be written is said, and holds up nothing."""

    def __init__(
        self, run: str, path: Path, redact: Callable[[str], str], say: Callable[[str], None]
    ) -> None:
        self._record = RunRecord(run)
        self._path = path
        self._redact = redact
        self._say = say

    def on_event(self, event: events.Event, at: float) -> None:
        self._record.handle(event, at)
        if isinstance(event, events.RunEnded):
            self._append(self._redact(markdown(self._record)).encode(errors="replace"))

    def close(self) -> None:
        pass

    def _append(self, content: bytes) -> None:
        """Other steps' words may be there already."""
        try:
            with open(self._path, "ab") as file:
                room = LARGEST - file.tell()
                file.write(content if len(content) <= room else _shortened(content, room))
        except OSError as error:
            self._say(f"[COORDINATOR] {self._path} (GITHUB_STEP_SUMMARY) cannot be written: {error.strerror}")


def _shortened(content: bytes, room: int) -> bytes:
    """Whole lines, and a last one that says so."""
    last = b"\n\nShortened: GitHub shows no more. All of it: `agentos report`\n"
    kept = content[: max(0, room - len(last))].rpartition(b"\n")[0]
    return kept + last if len(last) <= room else b""
