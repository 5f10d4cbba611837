"""The title, the progress indicator and the bell of a terminal, so that a run can be left in the background."""

from agentos.config.settings import TerminalInfo
from agentos.core.run_state.run_stats import RunStats

MIN_BELL_SECONDS = 10.0  # of a run; after a shorter one, the user is still watching
BELL = "\a"
_PUSH_TITLE, _POP_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_RUNNING, _PAUSED = 1, 4
"""States of the progress indicator (OSC 9;4)."""


class TerminalStatus:
    """Returns the escape sequences to write; empty where the terminal supports none or nothing has changed."""

    def __init__(self, info: TerminalInfo) -> None:
        self._info = info
        self._title = ""
        self._progress = (0, 0)

    def update(self, stats: RunStats) -> str:
        """Show the progress of the run; once it has ended, restore the previous state."""
        if stats.started is None:
            return ""
        if stats.ended is not None:
            return self.restore()
        return self._set_title(stats) + self._set_progress(stats)

    def restore(self) -> str:
        title, progress = self._title, self._progress
        self._title, self._progress = "", (0, 0)
        return (_POP_TITLE if title else "") + ("\x1b]9;4;0\x1b\\" if progress[0] else "")

    def bell(self, stats: RunStats) -> str:
        is_long = stats.ended is not None and stats.ended.seconds >= MIN_BELL_SECONDS
        return BELL if is_long and self._info.bell else ""

    def _set_title(self, stats: RunStats) -> str:
        if not self._info.titles:
            return ""
        assert stats.started is not None
        paused = ", paused" if stats.paused_since is not None else ""
        title = f"{stats.over}/{len(stats.rows)} {stats.started.workflow}{paused} - agentos"
        before, self._title = self._title, "".join(filter(str.isprintable, title))
        if self._title == before:
            return ""
        return ("" if before else _PUSH_TITLE) + f"\x1b]2;{self._title}\x1b\\"

    def _set_progress(self, stats: RunStats) -> str:
        if not self._info.progress:
            return ""
        state = _PAUSED if stats.paused_since is not None else _RUNNING
        progress = (state, 100 * stats.over // max(1, len(stats.rows)))
        before, self._progress = self._progress, progress
        return "" if progress == before else f"\x1b]9;4;{progress[0]};{progress[1]}\x1b\\"
