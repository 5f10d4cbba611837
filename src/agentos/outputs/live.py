"""The terminal renderer: scrolling lines above a fixed footer, redrawn by a separate thread."""

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agentos.config.settings import TerminalInfo
from agentos.core.protocol import events
from agentos.outputs.colour import paint, paint_text, unpainted
from agentos.outputs.console import COORDINATOR, Console
from agentos.outputs.footer import TerminalSize, footer, rows_taken, snapshot
from agentos.outputs.keyboard import Keyboard
from agentos.outputs.resume_command import Here
from agentos.outputs.terminal_status import TerminalStatus
from agentos.platform_support import wakeup_pipe

FRAME_INTERVAL = 0.1  # seconds
IDLE_FRAME_INTERVAL = 1.0  # seconds
WRITE_SIZE = 4096  # bytes
MAX_QUEUED_EVENTS = 20_000
SUSPEND_TIMEOUT = 0.5  # seconds
_SUSPENSIONS = events.RunSuspended | events.RunContinued
_URGENT = (
    events.ShutdownStarted | events.WorkersKilled | events.RunPaused | events.RunResumed | events.RunEnded
)


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How to use the terminal.

    Without a footer, progress is printed as lines. `reflows`: the terminal rewraps its rows when it is resized. `hint`
    explains the keys, `quit` is called when the user presses q, `here` is the folder in which they will type commands.
    """

    colours: bool
    reflows: bool
    footer: bool
    hint: str
    info: TerminalInfo = field(default_factory=TerminalInfo)
    quit: Callable[[], None] | None = None
    here: Here = None
    keep_order: bool = False


@dataclass(frozen=True, slots=True)
class _QueuedEvent:
    event: events.Event
    at: float
    silent: bool = False


class LiveDisplay:
    """A listener that renders a run on a terminal.

    The run only queues events: it never waits for the terminal. The display's thread owns the terminal and
    everything that is shown.
    """

    def __init__(
        self, descriptor: int, keyboard: Keyboard, redact: Callable[[str], str], options: LiveOptions
    ) -> None:
        self._descriptor = descriptor
        self._keyboard = keyboard
        self._options = options
        self._paint = paint if options.colours else unpainted
        self._paint_row = paint_text if options.colours else unpainted
        self._lines: list[str] = []
        progress = (lambda line: None) if options.footer else self._lines.append
        self._console = Console(
            self._lines.append, redact, progress, options.here, keep_order=options.keep_order
        )
        self._status = TerminalStatus(options.info)
        self._bell = ""
        self._events: deque[_QueuedEvent | str] = deque()
        self._dropped = 0
        self._shown: list[str] = []
        self._columns = 0
        self._drawn_at = 0.0
        self._closing = False
        self._writes = 0
        self._suspend_requested, self._suspended, self._resumed = (threading.Event() for _ in range(3))
        self._wakeup_r, self._wakeup_w = wakeup_pipe()
        self._thread = threading.Thread(target=self._render_loop, name="display", daemon=True)
        self._thread.start()

    # Called by the run; nothing here waits for the terminal.

    def on_event(self, event: events.Event, at: float) -> None:
        if len(self._events) >= MAX_QUEUED_EVENTS and isinstance(event, events.LineWritten):
            self._dropped += 1
            return
        self._events.append(_QueuedEvent(event, at))
        if isinstance(event, _URGENT | _SUSPENSIONS):
            self._wake_thread()

    def update_only(self, event: events.Event, at: float) -> None:
        """Count an event that happened before the display was opened, without printing it."""
        self._events.append(_QueuedEvent(event, at, silent=True))

    def write(self, line: str) -> None:
        self._events.append(line)

    def suspend(self) -> None:
        """Return the terminal to the shell; waits briefly for the display to do so."""
        self._suspended.clear()
        self._resumed.clear()
        self._suspend_requested.set()
        self._wake_thread()
        self._suspended.wait(SUSPEND_TIMEOUT)

    def resume(self) -> None:
        self._suspend_requested.clear()
        self._resumed.set()

    def close(self, stall_timeout: float = 2.0) -> None:
        """Write what is left, unless the terminal accepts nothing for `stall_timeout` seconds, and restore the terminal."""
        self.resume()
        self._closing = True
        self._wake_thread()
        writes, deadline = -1, time.monotonic() + stall_timeout
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._writes != writes:
                writes, deadline = self._writes, time.monotonic() + stall_timeout
            self._thread.join(0.05)
        self._keyboard.close()

    def _wake_thread(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_w, b"!")

    # Run by the display's thread.

    def _render_loop(self) -> None:
        with contextlib.suppress(OSError), contextlib.closing(self._keyboard):
            while not self._closing:
                self._wait()
                if self._suspend_requested.is_set():
                    self._suspend()
                elif self._events or self._lines or time.monotonic() - self._drawn_at >= IDLE_FRAME_INTERVAL:
                    self._draw(with_footer=True)
            self._draw(with_footer=False)

    def _wait(self) -> None:
        """Wait for the next frame, a key press or an urgent event."""
        keyboard = self._keyboard.open()
        ready, _, _ = select.select(
            [self._wakeup_r, *([] if keyboard is None else [keyboard])], [], [], FRAME_INTERVAL
        )
        if self._wakeup_r in ready:
            os.read(self._wakeup_r, 4096)
        if keyboard in ready and keyboard is not None:
            self._handle_keys(self._keyboard.read())

    def _handle_keys(self, keys: str) -> None:
        """Every key gets a reaction: quit, a snapshot, or the hint."""
        self._take_events()
        if self._options.quit is not None and "q" in keys:
            self._options.quit()
        elif any(key in "tT\r\n " for key in keys):
            self._lines += [f"{COORDINATOR} {line}" for line in snapshot(self._console.stats, time.time())]
        elif keys:
            self._lines.append(f"{COORDINATOR} {self._options.hint}")

    def _suspend(self) -> None:
        self._draw(with_footer=False)
        self._keyboard.close()
        self._suspended.set()
        self._resumed.wait()
        self._drawn_at = 0.0

    def _take_events(self) -> None:
        while self._events:
            match self._events.popleft():
                case str(line):
                    self._lines.append(line)
                case _QueuedEvent(event, at, silent=True):
                    self._console.update_only(event, at)
                case queued:
                    self._console.on_event(queued.event, queued.at)
                    if isinstance(queued.event, events.RunEnded):
                        self._bell = self._status.bell(self._console.stats)
        if self._dropped:
            self._lines.append(f"{COORDINATOR} {self._dropped} lines dropped (the log files have them)")
            self._dropped = 0

    def _draw(self, *, with_footer: bool) -> None:
        self._take_events()
        size = _terminal_size(self._descriptor)
        # In the background, the bottom of the screen belongs to another program.
        show_footer = with_footer and self._options.footer and self._keyboard.in_foreground()
        rows = footer(self._console.stats, time.time(), size) if show_footer else []
        lines = "".join(f"{self._paint(line)}\n" for line in self._lines)
        self._lines.clear()
        shown, self._shown = self._shown, rows
        status = self._status.update(self._console.stats) if with_footer else self._status.restore()
        if lines or rows != shown or size.columns != self._columns:
            painted = "\n".join(self._paint_row(row) for row in rows)
            height = rows_taken(shown, size.columns) if self._options.reflows else len(shown)
            status += _erase_rows(height) + lines + painted
        if status or self._bell:
            self._put(status + self._bell)
        self._bell = ""
        self._columns, self._drawn_at = size.columns, time.monotonic()

    def _put(self, text: str) -> None:
        content = text.encode("utf-8", "replace")
        while content:
            content = content[os.write(self._descriptor, content[:WRITE_SIZE]) :]
            self._writes += 1


def _erase_rows(rows: int) -> str:
    """The escape sequence that erases the last rows of the screen."""
    if not rows:
        return ""
    up = f"\x1b[{rows - 1}A" if rows > 1 else ""
    return f"\r{up}\x1b[J"


def _terminal_size(descriptor: int) -> TerminalSize:
    """The size of the terminal, or 80 x 24 if unknown."""
    try:
        columns, lines = os.get_terminal_size(descriptor)
    except OSError:
        columns, lines = 0, 0
    return TerminalSize(columns or 80, lines or 24)
