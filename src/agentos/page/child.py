"""Serves the page during a run, from a child process: `--page`."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from agentos.config.settings import environment
from agentos.core.errors import PreflightError

EXIT_GRACE = 3.0  # seconds


@contextlib.contextmanager
def page_alongside_run() -> Iterator[str]:
    """Yields the login link of a page that ends with this block, or when this process dies.

    The page is a separate process, so the run's event loop does no work for its viewers.
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
