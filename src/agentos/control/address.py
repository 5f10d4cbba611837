"""Where a run listens: a socket in its folder, however long the folder's path."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

NAME = "control.sock"
MAX_PATH = 4096
"""Of a request, in bytes."""


@contextlib.contextmanager
def address(folder: Path) -> Iterator[str]:
    """A path for bind and connect; those take 107 bytes, so it leads through a descriptor of ours."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
