"""What the live display costs: ten talkative workers, 200 lines a second: `python -m bench.display`.

Ends with 1 if it is more than 5 % of a core.
"""

import argparse
import contextlib
import os
import pty
import resource
import sys
import termios
import time
from collections.abc import Callable

from agentos.config.settings import TerminalInfo
from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.outputs.display import open_display

WORKERS = 10
LINES = 200
ALLOWED = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    base, cost = _measure(lambda event, at: None, seconds), _in_a_terminal(seconds)
    print(
        f"{WORKERS} workers, {LINES} lines/s, {seconds:g} s: {cost:.2f} % of a core, "
        f"{base:.2f} % of it the bench's own; allowed are {ALLOWED:g} %"
    )
    return int(cost > ALLOWED)


def _in_a_terminal(seconds: float) -> float:
    """In the foreground of a terminal whose screen this process reads, so that reading does not count."""
    result, report = os.pipe()
    child, screen = pty.fork()
    if child == 0:
        termios.tcsetwinsize(1, (50, 120))
        shown = open_display("live", 1, str, TerminalInfo(colours=True))
        cost = _measure(shown.on_event, seconds)
        shown.close()
        os.write(report, f"{cost}".encode())
        os._exit(0)
    written = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(screen, 65536):
            written += chunk
    os.waitpid(child, 0)
    assert written.count(b"workflows complete") > 5 * seconds, "the footer was not drawn"
    return float(os.read(result, 100))


def _measure(hear: Callable[[events.Event, float], None], seconds: float) -> float:
    """Per cent of one core that this process used."""
    items = tuple(f"LLD-{number}" for number in range(WORKERS))
    hear(events.RunStarted("bench", "lld", "/", items, WORKERS, ("key-1",)), time.time())
    for item in items:
        hear(events.ItemStarted(item, 1, 1), time.time())
    before, began, said = _used(), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while said < passed * LINES:
            item = items[said % WORKERS]
            hear(
                events.LineWritten(item, f"line {said} of a worker that has a lot to say about its work"),
                time.time(),
            )
            if said % 20 == 0:
                hear(events.LeaseReleased(item, "lease", 1.0, Usage(1, 100, 100)), time.time())
            said += 1
        time.sleep(0.02)
    return 100 * (_used() - before) / seconds


def _used() -> float:
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    sys.exit(main())
