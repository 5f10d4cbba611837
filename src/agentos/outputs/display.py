"""Which display a person gets."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentos.core import events
from agentos.core.lines import one_line
from agentos.core.tally import Tally
from agentos.outputs.again import Here
from agentos.outputs.colour import paint, plain
from agentos.outputs.console import COORDINATOR, Console
from agentos.outputs.keyboard import Keyboard
from agentos.outputs.live import Live, Look
from agentos.outputs.summary import next_steps
from agentos.outputs.writer import LineWriter


@dataclass(frozen=True, slots=True)
class Manners:
    """What the surroundings say about a terminal; `colours` is None when they say nothing."""

    colours: bool | None = None
    simple: bool = False
    rewraps: bool = True


class Display(Protocol):
    """A listener that also takes single lines, and can give the terminal away for a while."""

    def hear(self, event: events.Event, at: float) -> None: ...

    def learn(self, event: events.Event, at: float) -> None: ...

    def write(self, line: str) -> None: ...

    def rest(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


def open_display(
    kind: str,
    descriptor: int,
    redact: Callable[[str], str],
    manners: Manners,
    leave: Callable[[], None] | None = None,
) -> Display:
    """`auto` is live on a terminal that can do it, and plain lines elsewhere; any terminal's keys are answered."""
    terminal = _is_terminal(descriptor)
    colours = manners.colours if manners.colours is not None else terminal and not manners.simple
    if kind == "none":
        return Last(LineWriter(descriptor), redact, _here())
    if terminal:
        footer = kind == "live" or (kind == "auto" and not manners.simple)
        keyboard = Keyboard(0 if _is_terminal(0) else descriptor)
        return Live(
            descriptor, keyboard, redact, Look(colours, manners.rewraps, footer, _hint(leave), leave, _here())
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

    def hear(self, event: events.Event, at: float) -> None:
        self._console.hear(event, at)

    def learn(self, event: events.Event, at: float) -> None:
        self._console.learn(event, at)

    def write(self, line: str) -> None:
        self._writer.write(self._paint(line))

    def rest(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self._writer.close()


class Last:
    """Nothing until the end, and then what to type next."""

    def __init__(self, writer: LineWriter, redact: Callable[[str], str], here: Here) -> None:
        self._writer = writer
        self._here = here
        self._redact = redact
        self._tally = Tally()

    def hear(self, event: events.Event, at: float) -> None:
        self._tally.hear(event, at)
        if isinstance(event, events.RunEnded):
            for line in next_steps(self._tally, self._here):
                self.write(f"{COORDINATOR} {one_line(line)}")

    def learn(self, event: events.Event, at: float) -> None:
        self._tally.hear(event, at)

    def write(self, line: str) -> None:
        self._writer.write(self._redact(line))

    def rest(self) -> None:
        pass

    def wake(self) -> None:
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
