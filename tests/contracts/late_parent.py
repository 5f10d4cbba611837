"""Makes the parent of a fork lose the race against its child, as on a busy machine."""

import os
import time

_fork = os.fork


def _fork_and_wait() -> int:
    pid = _fork()
    if pid:
        time.sleep(0.5)
    return pid


os.fork = _fork_and_wait
