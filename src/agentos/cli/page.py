"""`agentos page`: watch, read, decide and steer in a browser."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.core.errors import PreflightError, UsageError

if TYPE_CHECKING:
    from agentos.page.server import FleetPlace

MIN_PASSWORD = 12  # characters
MISSING = "the page needs the extra 'page': type pip install 'agentos-runner[page]'"


def _run(
    open_browser: bool,
    port: int,
    host: str,
    password_file: Path | None,
    read_only: bool,
    die_with_parent: bool,
    fleet: bool,
) -> int:
    """Serve a page on this machine that shows every run, live, and takes decisions and requests.

    Prints a login link that works once. Ctrl-C ends the page; runs continue.
    """
    check_extra()
    from agentos.config.settings import usable_home
    from agentos.page.access import is_loopback
    from agentos.page.server import PageOptions, serve_page
    from agentos.storage.home import Home

    if not is_loopback(host) and password_file is None:
        raise UsageError(_refusal(host, port))
    password = _read_password(password_file) if password_file else None
    home = Home(usable_home()).open()
    place = _fleet_place() if fleet else None
    options = PageOptions(home, host, port, password, read_only, die_with_parent, place)
    if die_with_parent:
        return serve_page(options, click.echo, lambda link: None)
    with _Browser(home.path, open_browser) as browser:

        def announce(link: str) -> None:
            click.echo(f"Page: {link}\nThe link works once. Ctrl-C ends the page; runs continue.")
            if password and not is_loopback(host):
                click.echo("Warning: it is not encrypted. Use it in a network that you trust, or behind TLS.")
            browser.open(link)

        def announce_next(link: str) -> None:
            with contextlib.suppress(OSError):  # the reader of our output is gone, but the page stays
                click.echo(f"Logged in. For another browser: {link}")

        return serve_page(options, announce, announce_next)


def _fleet_place() -> "FleetPlace":
    """The fleet that the environment names, with the current project if it has a fleet name."""
    from agentos.cli.fleet import require_fleet
    from agentos.config.settings import Flags, fleet_access, read_settings
    from agentos.page.server import FleetPlace

    require_fleet()
    settings, access = read_settings(Flags()), fleet_access()
    folders = {settings.fleet.project: settings.project} if settings.fleet.project else {}
    return FleetPlace(replace(access, gateway=access.gateway or settings.fleet.gateway), folders)


def check_extra() -> None:
    """Raise PreflightError if something that the page needs is not installed."""
    from importlib.util import find_spec

    if not all(find_spec(name) for name in ("starlette", "uvicorn", "markdown_it")):
        raise PreflightError(MISSING)


@contextlib.contextmanager
def page_if_wanted(wanted: bool, echo: Callable[[str], None]) -> Iterator[None]:
    """If `--page` was given, serve the page during this block, and print its address."""
    if not wanted:
        yield
        return
    check_extra()
    from agentos.page.child import page_alongside_run

    with page_alongside_run() as link:
        echo(f"[COORDINATOR] Page: {link}")
        echo("[COORDINATOR] The link works once. The page ends with the run; after that: agentos page")
        yield


def _refusal(host: str, port: int) -> str:
    """The error for a page on the network without a password: why it needs one, and what to type instead."""
    import getpass
    import socket

    chosen = port or 8484
    tunnel = f"ssh -N -L {chosen}:127.0.0.1:{chosen} {getpass.getuser()}@{socket.gethostname()}"
    return (
        f"--host {host} would let other machines in: that needs --password-file FILE. Safer: run "
        f'"agentos page --port {chosen}" here and type on the other machine: {tunnel}'
    )


def _read_password(path: Path) -> str:
    from agentos.regular_files import open_regular, read_regular

    try:
        descriptor = open_regular(path)
        mode, owner = os.fstat(descriptor).st_mode, os.fstat(descriptor).st_uid
        os.close(descriptor)
        text = read_regular(path, limit=4096).decode("utf-8", "replace")
    except OSError as error:
        raise PreflightError(
            f"cannot read {path}: {error.strerror}; create it with your password in it"
        ) from error
    if mode & 0o077 or owner != os.geteuid():
        raise PreflightError(f"{path} can be read by others: type chmod 600 {path}")
    password = text.splitlines()[0].strip() if text.strip() else ""
    if len(password) < MIN_PASSWORD:
        raise PreflightError(
            f"the password in {path} has {len(password)} characters: expected {MIN_PASSWORD} or more on its first line"
        )
    return password


class _Browser:
    """Opens the link in the user's browser, by way of a private file that redirects to it.

    In a process argument, other users could read the token.
    """

    def __init__(self, home: Path, wanted: bool) -> None:
        self._home = home
        self._wanted = wanted
        self._file: Path | None = None

    def __enter__(self) -> "_Browser":
        return self

    def open(self, link: str) -> None:
        if not self._wanted:
            return
        import webbrowser

        from agentos.storage.files import Folder

        try:
            controller = webbrowser.get()
        except webbrowser.Error:
            controller = None
        if controller is None or type(controller) is webbrowser.GenericBrowser:  # it would be a text browser
            click.echo("No browser was found here: open the link yourself.", err=True)
            return
        content = (
            f'<!doctype html><meta http-equiv="refresh" content="0; url={link}"><a href="{link}">agentos</a>'
        )
        self._file = Folder(self._home, file_mode=0o600).write(
            f"open-page-{os.getpid()}.html", content.encode()
        )
        controller.open(self._file.as_uri())

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.unlink(missing_ok=True)


command = click.Command(
    "page",
    callback=_run,
    help=_run.__doc__,
    params=[
        click.Option(["--open", "open_browser"], is_flag=True, help="Open it in your browser."),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            default=0,
            help="Port to listen on; 0 picks a free one.",
        ),
        click.Option(
            ["--host"],
            default="127.0.0.1",
            help="Address to listen on (127.0.0.1). Any but this machine's own needs --password-file.",
        ),
        click.Option(
            ["--password-file"],
            type=click.Path(path_type=Path, dir_okay=False),
            help=f"File with a password of at least {MIN_PASSWORD} characters that only you can read.",
        ),
        click.Option(
            ["--fleet"], is_flag=True, help="Show a fleet's submissions instead of this home's runs."
        ),
        click.Option(["--read-only"], is_flag=True, help="Show everything, change nothing."),
        click.Option(
            ["--die-with-parent"], is_flag=True, help="Exit when stdin closes; print only the link."
        ),
    ],
    epilog="\b\nExamples:\n  agentos page --open\n  agentos page --port 8484 --read-only\n  agentos page --fleet",
)
