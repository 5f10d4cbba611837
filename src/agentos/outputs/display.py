"""Chooses the display of a run: live footer, plain lines, or only the final line."""

from collections.abc import Callable
from typing import Protocol

from agentos.config.settings import TerminalInfo, reader_folder
from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.core.text.line_assembler import one_line
from agentos.outputs.colour import is_terminal, paint, unpainted, wants_colours
from agentos.outputs.console import COORDINATOR, Console
from agentos.outputs.keyboard import Keyboard
from agentos.outputs.live import LiveDisplay, LiveOptions
from agentos.outputs.resume_command import Here
from agentos.outputs.summary import next_steps
from agentos.outputs.writer import LineWriter

RUN_KEYS = "Keys: t or Enter for a snapshot, Ctrl-C to stop and save, Ctrl-Z to suspend."
WATCH_KEYS = "Keys: t or Enter for a snapshot, q or Ctrl-C to quit; the run continues."


class Display(Protocol):
    """A listener that also writes single lines and can temporarily return the terminal to the shell."""

    def on_event(self, event: events.Event, at: float) -> None: ...

    def update_only(self, event: events.Event, at: float) -> None: ...

    def write(self, line: str) -> None: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def open_display(  # noqa: PLR0913 - keywords, half of them optional
    kind: str,
    descriptor: int,
    redact: Callable[[str], str],
    info: TerminalInfo,
    quit: Callable[[], None] | None = None,
    *,
    keep_order: bool = False,
) -> Display:
    """The display for `--display kind`; `auto` is live on a capable terminal and plain elsewhere.

    `quit` is called when the user presses q; without it, q does nothing. Keys work on any terminal.
    """
    colours = wants_colours(descriptor, info)
    if kind == "none":
        return QuietDisplay(LineWriter(descriptor), redact, reader_folder())
    if is_terminal(descriptor):
        footer = kind == "live" or (kind == "auto" and not info.is_simple)
        keyboard = Keyboard(0 if is_terminal(0) else descriptor)
        hint = RUN_KEYS if quit is None else WATCH_KEYS
        options = LiveOptions(colours, info.reflows, footer, hint, info, quit, reader_folder(), keep_order)
        return LiveDisplay(descriptor, keyboard, redact, options)
    painted = paint if colours else unpainted
    display = PlainDisplay(LineWriter(descriptor), redact, painted, reader_folder(), keep_order=keep_order)
    if kind == "live":
        display.write(f"{COORDINATOR} --display live needs a terminal. Showing plain lines.")
    return display


class PlainDisplay:
    """Writes lines to a pipe or a file in the order of events."""

    def __init__(
        self,
        writer: LineWriter,
        redact: Callable[[str], str],
        paint: Callable[[str], str],
        here: Here,
        *,
        keep_order: bool = False,
    ) -> None:
        self._writer = writer
        self._paint = paint
        self._console = Console(self.write, redact, self.write, here, keep_order=keep_order)

    def on_event(self, event: events.Event, at: float) -> None:
        self._console.on_event(event, at)

    def update_only(self, event: events.Event, at: float) -> None:
        self._console.update_only(event, at)

    def write(self, line: str) -> None:
        self._writer.write(self._paint(line))

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._writer.close()


class QuietDisplay:
    """Writes nothing until the run ends, then only what to type next."""

    def __init__(self, writer: LineWriter, redact: Callable[[str], str], here: Here) -> None:
        self._writer = writer
        self._here = here
        self._redact = redact
        self._stats = RunStats()

    def on_event(self, event: events.Event, at: float) -> None:
        self._stats.handle(event, at)
        if isinstance(event, events.RunEnded):
            for line in next_steps(self._stats, self._here):
                self.write(f"{COORDINATOR} {one_line(line)}")

    def update_only(self, event: events.Event, at: float) -> None:
        self._stats.handle(event, at)

    def write(self, line: str) -> None:
        self._writer.write(self._redact(line))

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._writer.close()
