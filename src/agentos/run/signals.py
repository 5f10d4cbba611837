"""Signals that only wake the loop; before there is one, they are answered at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLEEPING = signal.SIGTSTP


class StoppedMeanwhile(Exception):
    """A signal came before anything was begun."""


class Signals:
    """What has arrived, oldest first; whoever waits is woken.

    Until somebody does, `answer` is called at once, and Ctrl-Z stops this process.
    """

    def __init__(self, answer: Callable[[], None] = lambda: None) -> None:
        self.arrived: list[str] = []
        self.wake: Callable[[], None] | None = None
        self._answer = answer

    @contextlib.contextmanager
    def caught(self) -> Iterator["Signals"]:
        """Catches them, Ctrl-Z too; what was there before is put back. Main thread only."""
        # Whoever started us without job control wants no Ctrl-Z.
        wanted = STOPPING if signal.getsignal(SLEEPING) is signal.SIG_IGN else (*STOPPING, SLEEPING)
        before = {number: signal.signal(number, self._arrive) for number in wanted}
        try:
            yield self
        finally:
            for number, action in before.items():
                signal.signal(number, action)

    def check(self) -> None:
        """Between two steps before the beginning: whoever pressed Ctrl-C meanwhile wants none."""
        if self.arrived:
            raise StoppedMeanwhile

    def sleep(self) -> None:
        """Stops this process, as Ctrl-Z would have; returns when its shell continues it."""
        caught = signal.signal(SLEEPING, signal.SIG_DFL)
        signal.raise_signal(SLEEPING)
        signal.signal(SLEEPING, caught)

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self.wake is None and number == SLEEPING:
            self.sleep()
            return
        self.arrived.append(signal.Signals(number).name)
        (self.wake or self._answer)()


def ignore_from_now_on() -> None:
    """A late Ctrl-C must not hit an interpreter that is shutting down."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
