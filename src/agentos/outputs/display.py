"""Which display a person gets."""

import contextlib
import os
from collections.abc import Callable
from typing import Protocol

from agentos.config.settings import TerminalInfo
from agentos.core.protocol import events
from agentos.core.run_state.run_stats import RunStats
from agentos.core.text.line_assembler import one_line
from agentos.outputs.colour import paint, plain
from agentos.outputs.console import COORDINATOR, Console
from agentos.outputs.keyboard import Keyboard
from agentos.outputs.live import Live, Look
from agentos.outputs.resume_command import Here
from agentos.outputs.summary import next_steps
from agentos.outputs.writer import LineWriter


class Display(Protocol):
    """A listener that also takes single lines, and can give the terminal away for a while."""

    def on_event(self, event: events.Event, at: float) -> None: ...

    def update_only(self, event: events.Event, at: float) -> None: ...

    def write(self, line: str) -> None: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def open_display(
    kind: str,
    descriptor: int,
    redact: Callable[[str], str],
    profile: TerminalInfo,
    leave: Callable[[], None] | None = None,
) -> Display:
    """`auto` is live on a terminal that can do it, and plain lines elsewhere; any terminal's keys are answered."""
    terminal = _is_terminal(descriptor)
    colours = profile.colours if profile.colours is not None else terminal and not profile.is_simple
    if kind == "none":
        return QuietDisplay(LineWriter(descriptor), redact, _here())
    if terminal:
        footer = kind == "live" or (kind == "auto" and not profile.is_simple)
        keyboard = Keyboard(0 if _is_terminal(0) else descriptor)
        return Live(
            descriptor, keyboard, redact, Look(colours, profile.reflows, footer, _hint(leave), leave, _here())
        )
    shown = Plain(LineWriter(descriptor), redact, paint if colours else plain, _here())
    if kind == "live":
        shown.write(f"{COORDINATOR} --display live needs a terminal. Showing plain lines.")
    return shown


class Plain:
    """Whole lines for a pipe or a file, in the order in which things happen."""

    def __init__(
        self, writer: LineWriter, redact: Callable[[str], str], paint: Callable[[str], str], here: Here
    ) -> None:
        self._writer = writer
        self._paint = paint
        self._console = Console(self.write, redact, self.write, here)

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
    """Nothing until the end, and then what to type next."""

    def __init__(self, writer: LineWriter, redact: Callable[[str], str], here: Here) -> None:
        self._writer = writer
        self._here = here
        self._redact = redact
        self._tally = RunStats()

    def on_event(self, event: events.Event, at: float) -> None:
        self._tally.handle(event, at)
        if isinstance(event, events.RunEnded):
            for line in next_steps(self._tally, self._here):
                self.write(f"{COORDINATOR} {one_line(line)}")

    def update_only(self, event: events.Event, at: float) -> None:
        self._tally.handle(event, at)

    def write(self, line: str) -> None:
        self._writer.write(self._redact(line))

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._writer.close()


def _hint(leave: Callable[[], None] | None) -> str:
    if leave is not None:
        return "Keys: t or Enter for a snapshot, q or Ctrl-C to leave; the run goes on."
    return "Keys: t or Enter for a snapshot, Ctrl-C to stop and save, Ctrl-Z to stand still."


def _here() -> Here:
    """Where people type what is said to them; a folder that is gone is no place."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return None


def _is_terminal(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False
