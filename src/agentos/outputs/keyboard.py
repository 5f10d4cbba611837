"""The keys that a person presses while a run goes on."""

import contextlib
import os
import signal
import termios


class Keyboard:
    """Reads single keys without echo while we are in the foreground; gives the terminal back as it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[object] | None = None
        self._gone = not os.isatty(descriptor)

    def open(self) -> int | None:
        """What to wait on; None while there is nobody to listen to."""
        if self._gone or not self.in_front():
            return None
        if self._before is None:
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(self._descriptor)
                # Ctrl-C must not throw away what is on its way to the screen.
                keys = (before[3] | termios.NOFLSH) & ~(termios.ICANON | termios.ECHO)
                self._set([*before[:3], keys, *before[4:]])
                self._before = before
        return self._descriptor if self._before is not None else None

    def read(self) -> str:
        try:
            found = os.read(self._descriptor, 1024)
        except OSError:
            found = b""
        self._gone = not found
        return found.decode("utf-8", "replace")

    def close(self) -> None:
        """As it was; a shell that has the terminal now has seen to it itself."""
        before, self._before = self._before, None
        if before is not None and self.in_front():
            with contextlib.suppress(termios.error):
                self._set(before)

    def in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _set(self, attributes: list[object]) -> None:
        # We may be put into the background at this very moment: then this must not stop us.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU, signal.SIGTTIN})
        # Not after what is still to be written: that may stall.
        termios.tcsetattr(self._descriptor, termios.TCSANOW, attributes)  # type: ignore[arg-type]
