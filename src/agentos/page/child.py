"""Serves the page beside a run, as a child process of it: `--page`."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from agentos.config.settings import environment
from agentos.core.errors import PreflightError

EXIT_GRACE = 3.0  # seconds


@contextlib.contextmanager
def page_beside_run() -> Iterator[str]:
    """The login link of a page that ends with this block, and with this process whatever happens to it.

    A process of its own: however many people look, the run's event loop does nothing for them.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "agentos", "page", "--die-with-parent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environment()),
        start_new_session=True,
    )
    assert process.stdin and process.stdout
    try:
        link = process.stdout.readline().strip()
        if not link:
            code = process.wait(EXIT_GRACE)
            raise PreflightError(f"the page did not start (exit code {code}); see its message above")
        yield link
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(EXIT_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
