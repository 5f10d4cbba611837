"""One warning, however many of a run's records cannot be written."""

from collections.abc import Callable


class WarnOnce:
    """Called with each error of a file that only tells about the work; `write` takes one whole line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._told = False

    def __call__(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            self._write(
                f"[COORDINATOR] Log files cannot be written ({error.strerror}). Work goes on without them."
            )
