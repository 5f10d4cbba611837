"""Runs the page's web server: binds the address, prints how to log in, and serves until it is stopped."""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from agentos.config.settings import FleetAccess, environment
from agentos.core.errors import AgentosError, PreflightError
from agentos.core.text.secrets import Redactor, Secret
from agentos.core.text.values import split_url
from agentos.page.access import HostCheck, PageSessions
from agentos.page.actions import HomeControl, RunControl
from agentos.page.event_stream import MAX_STREAMS, EventStreams
from agentos.page.reviews import HomeReviews, ReviewQueue
from agentos.page.routes import PageApp, build_app
from agentos.page.run_view import HomeRuns, RunViews
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home

MAX_CONNECTIONS = MAX_STREAMS + 100
MAX_HEADERS = 16 * 1024  # bytes
SHUTDOWN_SECONDS = 1
LAST_EVENTS = 0.6  # seconds in which open pages are still told how the run ended
PRELOADED_RUNS = 5
NICENESS = 10  # runs come first


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """Where a fleet is, and which of its projects are folders on this machine."""

    access: FleetAccess
    folders: dict[str, Path]


@dataclass(frozen=True, slots=True)
class PageParts:
    """What the page shows and can change: the runs of a home, or a fleet."""

    runs: RunViews
    reviews: ReviewQueue
    control: RunControl


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How to serve the page. With `fleet` it shows that fleet instead of the home's runs. With `ends_with_stdin` it
    ends when its standard input is closed, as it is when the run that started the page ends."""

    home: Home
    host: str = "127.0.0.1"
    port: int = 0
    password: str | None = None
    read_only: bool = False
    ends_with_stdin: bool = False
    fleet: FleetPlace | None = None


def serve_page(options: PageOptions, ready: Callable[[str], None], next_link: Callable[[str], None]) -> int:
    """Serve until Ctrl-C or SIGTERM. `ready` gets the first login link, `next_link` each one after that."""
    listening = _listen(options.host, options.port)
    port = listening.getsockname()[1]

    def link(token: str) -> str:
        return f"http://{_shown_host(options.host)}:{port}/login#{token}"

    sessions = PageSessions(time.monotonic, options.password, lambda token: next_link(link(token)))
    with listening, contextlib.ExitStack() as stack:
        parts = (
            _fleet_parts(options.home, options.fleet, stack) if options.fleet else _home_parts(options.home)
        )
        page = PageApp(
            sessions,
            options.read_only,
            KnownSecrets(options.home.credentials, options.fleet.access if options.fleet else None).redactor,
            link,
            f"agentos_page_{port}",
            parts.runs,
            parts.reviews,
            EventStreams(),
            parts.control,
        )
        _serve(page, options, listening, ready)
    return 0


def _home_parts(home: Home) -> PageParts:
    runs = HomeRuns(home.runs)
    return PageParts(runs, ReviewQueue(HomeReviews(home, runs)), HomeControl())


def _fleet_parts(home: Home, place: FleetPlace, stack: contextlib.ExitStack) -> PageParts:
    """Raises PreflightError if Postgres cannot be used."""
    # Needs the extra [fleet], which the page of a home does not.
    from agentos.page.fleet_parts import open_fleet_parts

    runs, reviews, control = stack.enter_context(open_fleet_parts(home, place.access, place.folders))
    return PageParts(runs, ReviewQueue(reviews), control)


def _serve(
    page: PageApp, options: PageOptions, listening: socket.socket, ready: Callable[[str], None]
) -> None:
    port = listening.getsockname()[1]
    os.nice(NICENESS)
    # Errors in a request are reported to its sender; uvicorn would repeat them on the terminal.
    logging.getLogger("uvicorn.error").disabled = True
    server = uvicorn.Server(_config(build_app(page, HostCheck.of(options.host)), port))
    threading.Thread(target=_preload, args=(page.runs_shown,), daemon=True).start()
    if options.ends_with_stdin:
        threading.Thread(target=_end_with_stdin, args=(page.streams,), daemon=True).start()
    try:
        _end_on_signals()
        ready(page.link(page.sessions.login_token))  # may take a while: it opens the browser
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass


def _end_on_signals() -> None:
    """End the page on SIGTERM and SIGHUP as on Ctrl-C: uvicorn shuts down, then raises the signal again."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))


def _config(app: object, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        port=port,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(128)  # before the link is printed: whoever opens it at once waits a moment
    except OSError as error:
        listening.close()
        problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise PreflightError(f"{problem}; choose another with --port or --host") from error
    return listening


def _shown_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _preload(views: RunViews) -> None:
    """Read the newest runs in advance, so that the first view is as fast as later ones."""
    for run in views.ids()[:PRELOADED_RUNS]:
        try:
            views.find(run)
        except AgentosError:
            continue


def _end_with_stdin(streams: EventStreams) -> None:
    while sys.stdin.buffer.read(4096):
        pass
    time.sleep(LAST_EVENTS if streams.count else 0)
    os.kill(os.getpid(), signal.SIGINT)


@dataclass(slots=True)
class KnownSecrets:
    """The keys of this home, reread when their file changes. A second defence: the records are redacted already."""

    path: Path
    fleet: FleetAccess | None = None
    _stamp: tuple[int, int] | None = None
    _redactor: Redactor | None = None

    def redactor(self) -> Redactor:
        stamp = self._current()
        if self._redactor is None or stamp != self._stamp:
            self._stamp, self._redactor = stamp, Redactor([*self._secrets(), *self._fleet_secrets()])
        return self._redactor

    def _current(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _fleet_secrets(self) -> list[Secret]:
        if self.fleet is None:
            return []
        password = split_url(self.fleet.postgres.reveal())
        found = [self.fleet.postgres, self.fleet.token, Secret(password.password or "") if password else None]
        return [secret for secret in found if secret is not None and secret.reveal()]

    def _secrets(self) -> list[Secret]:
        try:
            credentials = CredentialSource(self.path, environment()).read()
        except AgentosError:
            return []
        return [credential.secret for credential in credentials]
