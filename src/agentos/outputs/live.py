"""The display on a terminal: lines that scroll, above a footer that stays, and keys that are answered."""

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.outputs.colour import paint, paint_row, plain
from agentos.outputs.console import COORDINATOR, Console
from agentos.outputs.footer import TerminalSize, footer, rows_taken, snapshot
from agentos.outputs.keyboard import Keyboard
from agentos.outputs.resume_command import Here

FRAME = 0.1
IDLE_FRAME = 1.0
AT_ONCE = 4096
MOST_WAITING = 20_000
REST = 0.5
_SLEEP_LIKE = events.RunSuspended | events.RunContinued
_URGENT = (
    events.ShutdownStarted | events.WorkersKilled | events.RunPaused | events.RunResumed | events.RunEnded
)


@dataclass(frozen=True, slots=True)
class Look:
    """How a terminal is to be treated; without a footer, progress comes in lines.

    A leaver is called when a person presses q.
    """

    colours: bool
    rewraps: bool
    footer: bool
    hint: str
    leave: Callable[[], None] | None = None
    here: Here = None


@dataclass(frozen=True, slots=True)
class _Heard:
    event: events.Event
    at: float
    before: bool = False


class Live:
    """A listener. One thread of its own owns the terminal and all that is shown; the run only hands events over."""

    def __init__(self, descriptor: int, keyboard: Keyboard, redact: Callable[[str], str], look: Look) -> None:
        self._descriptor = descriptor
        self._keyboard = keyboard
        self._look = look
        self._paint = paint if look.colours else plain
        self._paint_row = paint_row if look.colours else plain
        self._lines: list[str] = []
        progress = (lambda line: None) if look.footer else self._lines.append
        self._console = Console(self._lines.append, redact, progress, look.here)
        self._events: deque[_Heard | str] = deque()
        self._dropped = 0
        self._shown: list[str] = []
        self._columns = 0
        self._drawn_at = 0.0
        self._closing = self._broken = False
        self._progress = 0
        self._suspend_requested, self._suspended, self._awake = (threading.Event() for _ in range(3))
        self._wakeup_r, self._wakeup_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="display", daemon=True)
        self._thread.start()

    # For the run; nothing here waits for the terminal.

    def on_event(self, event: events.Event, at: float) -> None:
        if len(self._events) >= MOST_WAITING and isinstance(event, events.LineWritten):
            self._dropped += 1
            return
        self._events.append(_Heard(event, at))
        if isinstance(event, _URGENT | _SLEEP_LIKE):
            self._wake_thread()

    def update_only(self, event: events.Event, at: float) -> None:
        """Of what happened before, only what it adds up to is shown."""
        self._events.append(_Heard(event, at, before=True))

    def write(self, line: str) -> None:
        self._events.append(line)

    def suspend(self) -> None:
        """Gives the terminal to the shell; waits a moment for that, not for ever."""
        self._suspended.clear()
        self._awake.clear()
        self._suspend_requested.set()
        self._wake_thread()
        self._suspended.wait(REST)

    def resume(self) -> None:
        self._suspend_requested.clear()
        self._awake.set()

    def close(self, patience: float = 2.0) -> None:
        """Shows the rest as long as the terminal takes anything; gives it back as it was."""
        self.resume()
        self._closing = True
        self._wake_thread()
        seen, ends = -1, time.monotonic() + patience
        while self._thread.is_alive() and time.monotonic() < ends:
            if self._progress != seen:
                seen, ends = self._progress, time.monotonic() + patience
            self._thread.join(0.05)
        self._keyboard.close()

    def _wake_thread(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_w, b"!")

    # The thread.

    def _work(self) -> None:
        try:
            while not self._closing:
                self._wait()
                if self._suspend_requested.is_set():
                    self._suspend()
                elif self._events or self._lines or time.monotonic() - self._drawn_at >= IDLE_FRAME:
                    self._draw(with_footer=True)
            self._draw(with_footer=False)
        except OSError:
            self._broken = True
        finally:
            self._keyboard.close()

    def _wait(self) -> None:
        """A frame's time, or until a key, or what cannot wait."""
        keyboard = self._keyboard.open()
        ready, _, _ = select.select(
            [self._wakeup_r, *([] if keyboard is None else [keyboard])], [], [], FRAME
        )
        if self._wakeup_r in ready:
            os.read(self._wakeup_r, 4096)
        if keyboard in ready and keyboard is not None:
            self._press(self._keyboard.read())

    def _press(self, keys: str) -> None:
        """Whatever is pressed, something is said."""
        self._take_events()
        if self._look.leave is not None and "q" in keys:
            self._look.leave()
        elif any(key in "tT\r\n " for key in keys):
            self._lines += [f"{COORDINATOR} {line}" for line in snapshot(self._console.stats, time.time())]
        elif keys:
            self._lines.append(f"{COORDINATOR} {self._look.hint}")

    def _suspend(self) -> None:
        self._draw(with_footer=False)
        self._keyboard.close()
        self._suspended.set()
        self._awake.wait()
        self._drawn_at = 0.0

    def _take_events(self) -> None:
        while self._events:
            match self._events.popleft():
                case str(line):
                    self._lines.append(line)
                case _Heard(event, at, before=True):
                    self._console.update_only(event, at)
                case heard:
                    self._console.on_event(heard.event, heard.at)
        if self._dropped:
            self._lines.append(f"{COORDINATOR} {self._dropped} lines dropped (the log files have them)")
            self._dropped = 0

    def _draw(self, *, with_footer: bool) -> None:
        self._take_events()
        size = _size(self._descriptor)
        below = with_footer and self._look.footer and self._in_front()
        rows = footer(self._console.stats, time.time(), size) if below else []
        lines = "".join(f"{self._paint(line)}\n" for line in self._lines)
        self._lines.clear()
        shown, self._shown = self._shown, rows
        if lines or rows != shown or size.columns != self._columns:
            painted = "\n".join(self._paint_row(row) for row in rows)
            self._put(_erasing(shown, self._rows_of(shown, size)) + lines + painted)
        self._columns, self._drawn_at = size.columns, time.monotonic()

    def _in_front(self) -> bool:
        """In the background the bottom of the screen belongs to somebody else."""
        return self._keyboard.in_front()

    def _rows_of(self, shown: list[str], size: TerminalSize) -> int:
        return rows_taken(shown, size.columns) if self._look.rewraps else len(shown)

    def _put(self, text: str) -> None:
        content = text.encode("utf-8", "replace")
        while content:
            content = content[os.write(self._descriptor, content[:AT_ONCE]) :]
            self._progress += 1


def _erasing(shown: list[str], rows: int) -> str:
    if not shown:
        return ""
    up = f"\x1b[{rows - 1}A" if rows > 1 else ""
    return f"\r{up}\x1b[J"


def _size(descriptor: int) -> TerminalSize:
    """What an unknown size usually is."""
    try:
        columns, lines = os.get_terminal_size(descriptor)
    except OSError:
        columns, lines = 0, 0
    return TerminalSize(columns or 80, lines or 24)
