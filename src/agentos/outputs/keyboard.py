"""Reads single key presses from the terminal during a run."""

import contextlib
import os
import signal
import termios


class Keyboard:
    """Reads keys without echo while this process is in the foreground, and restores the terminal's settings."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._saved_settings: list[object] | None = None
        self._closed = not os.isatty(descriptor)

    def open(self) -> int | None:
        """The descriptor to select on; None while keys cannot be read."""
        if self._closed or not self.in_foreground():
            return None
        if self._saved_settings is None:
            with contextlib.suppress(termios.error):
                settings = termios.tcgetattr(self._descriptor)
                # NOFLSH: Ctrl-C must not discard output that is on its way to the screen.
                local_flags = (settings[3] | termios.NOFLSH) & ~(termios.ICANON | termios.ECHO)
                self._set([*settings[:3], local_flags, *settings[4:]])
                self._saved_settings = settings
        return self._descriptor if self._saved_settings is not None else None

    def read(self) -> str:
        try:
            found = os.read(self._descriptor, 1024)
        except OSError:
            found = b""
        self._closed = not found
        return found.decode("utf-8", "replace")

    def close(self) -> None:
        """Restore the settings, unless a shell has taken the terminal back and restored its own."""
        settings, self._saved_settings = self._saved_settings, None
        if settings is not None and self.in_foreground():
            with contextlib.suppress(termios.error):
                self._set(settings)

    def in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _set(self, attributes: list[object]) -> None:
        # If we are in the background by now, SIGTTOU must not stop us.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU, signal.SIGTTIN})
        # TCSANOW rather than TCSADRAIN: pending output may never drain.
        termios.tcsetattr(self._descriptor, termios.TCSANOW, attributes)  # type: ignore[arg-type]
