"""Signal handling: handlers only record the signal and wake the event loop."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SUSPEND_SIGNAL = signal.SIGTSTP


class StoppedBeforeStart(Exception):
    """A stop signal arrived before any work was started."""


class Signals:
    """Signals received so far, oldest first, in `arrived`.

    Set `wake` once the event loop is ready: it is called for each signal. Until then `acknowledge` is called instead,
    and Ctrl-Z suspends this process directly.
    """

    def __init__(self, acknowledge: Callable[[], None] = lambda: None) -> None:
        self.arrived: list[str] = []
        self.wake: Callable[[], None] | None = None
        self._acknowledge = acknowledge

    @contextlib.contextmanager
    def caught(self) -> Iterator["Signals"]:
        """Install the handlers, and restore the previous ones on exit. Main thread only."""
        # A shell without job control starts us with SIGTSTP ignored; leave it ignored.
        job_control = signal.getsignal(SUSPEND_SIGNAL) is not signal.SIG_IGN
        numbers = (*STOP_SIGNALS, SUSPEND_SIGNAL) if job_control else STOP_SIGNALS
        previous = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield self
        finally:
            for number, action in previous.items():
                signal.signal(number, action)

    def check(self) -> None:
        """Raise StoppedBeforeStart if a signal has arrived. Called between the steps of building a run."""
        if self.arrived:
            raise StoppedBeforeStart

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z would by default; returns when the shell continues it."""
        handler = signal.signal(SUSPEND_SIGNAL, signal.SIG_DFL)
        signal.raise_signal(SUSPEND_SIGNAL)
        signal.signal(SUSPEND_SIGNAL, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.wake is None and number == SUSPEND_SIGNAL:
            self.suspend()
            return
        self.arrived.append(signal.Signals(number).name)
        (self.wake or self._acknowledge)()


def ignore_stop_signals() -> None:
    """Keep a late Ctrl-C from interrupting an interpreter that is shutting down."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
