"""Who may use the page: login tokens, sessions, and the checks that every request passes."""

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

SESSION_SECONDS = 12 * 3600.0
MAX_SESSIONS = 64
MAX_FAILURES, FAILURE_WINDOW = 10, 60.0  # wrong passwords, within this many seconds
SESSION_HEADER = "x-agentos-session"
LOOPBACK_NAMES = frozenset(("127.0.0.1", "localhost", "::1"))


class LoginRefused(Exception):
    """The token or the password is wrong, or there were too many wrong ones."""

    def __init__(self, reason: str, retry_after: int = 0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class NewPageSession:
    """The two halves of a browser's session.

    A browser sends the cookie to every port of a host, and so to a server that another user runs there. The key is
    kept by the page's own scripts, which only the page's own port can read. The API wants both.
    """

    cookie: str
    key: str


@dataclass(slots=True)
class PageSessions:
    """Logs in browsers and programs. Stores only digests of tokens, and compares them in constant time.

    A login token works once: when one is used, `on_used` is called with the next.
    """

    clock: Callable[[], float]
    password: str | None = None
    on_used: Callable[[str], None] = lambda token: None
    login_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _browsers: dict[str, tuple[str, float]] = field(default_factory=dict)
    _bearers: dict[str, float] = field(default_factory=dict)
    _failures: list[float] = field(default_factory=list)

    def log_in(self, secret: str) -> NewPageSession:
        """Exchange a login token, or the password, for a session. Raises LoginRefused."""
        self._check_secret(secret)
        session = NewPageSession(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        _make_room(self._browsers, MAX_SESSIONS)
        self._browsers[_digest(session.cookie)] = (_digest(session.key), self.clock() + SESSION_SECONDS)
        return session

    def issue_bearer(self, secret: str) -> str:
        """Exchange a login token, or the password, for a token that programs send. Raises LoginRefused."""
        self._check_secret(secret)
        bearer = secrets.token_urlsafe(32)
        _make_room(self._bearers, MAX_SESSIONS)
        self._bearers[_digest(bearer)] = self.clock() + SESSION_SECONDS
        return bearer

    def log_out(self, cookie: str) -> None:
        self._browsers.pop(_digest(cookie), None)

    def is_browser(self, cookie: str) -> bool:
        """Whether this cookie belongs to a session. That is enough to serve the page's own files, which contain no data."""
        found = self._browsers.get(_digest(cookie))
        return found is not None and found[1] > self.clock()

    def allows(self, cookie: str, key: str, authorization: str) -> bool:
        """Whether a request with these credentials may read data and send requests."""
        scheme, _, bearer = authorization.partition(" ")
        if scheme.lower() == "bearer" and bearer:
            is_unused_login = _same(bearer.strip(), self.login_token)
            return is_unused_login or self._bearers.get(_digest(bearer.strip()), 0.0) > self.clock()
        found = self._browsers.get(_digest(cookie))
        return found is not None and found[1] > self.clock() and hmac.compare_digest(found[0], _digest(key))

    def _check_secret(self, secret: str) -> None:
        """Only wrong passwords are rate-limited: tokens cannot be guessed, and wrong ones must not lock their owner out."""
        if _same(secret, self.login_token):
            self.login_token = secrets.token_urlsafe(24)
            self.on_used(self.login_token)
            return
        if self.password is None:
            raise LoginRefused(
                "this link was used already or is from another start of the page: "
                "open the newest address that agentos page printed"
            )
        now = self.clock()
        self._failures = [at for at in self._failures if at > now - FAILURE_WINDOW]
        if len(self._failures) >= MAX_FAILURES:
            wait = int(self._failures[0] + FAILURE_WINDOW - now) + 1
            raise LoginRefused(f"too many wrong passwords: try again in {wait} s", wait)
        if not _same(secret, self.password):
            self._failures.append(now)
            raise LoginRefused("wrong password")


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Which Host headers are accepted, to prevent DNS rebinding.

    Beyond loopback, any IP address is accepted, but no name: others can point a name at this machine, but not an
    address.
    """

    names: frozenset[str]
    any_address: bool

    @classmethod
    def of(cls, host: str) -> "HostCheck":
        if is_loopback(host):
            return cls(LOOPBACK_NAMES | {host}, any_address=False)
        return cls(LOOPBACK_NAMES | {host.lower(), socket.gethostname().lower()}, any_address=True)

    def accepts(self, header: str) -> bool:
        name = host_name(header)
        return name in self.names or (self.any_address and _is_address(name))


def origin_problem(method: str, path: str, headers: Mapping[str, str]) -> str | None:
    """Where a request comes from that the page itself did not send; None if the page or a program sent it."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    # With https, the page is behind a proxy that adds TLS: nothing else can have the page's own host and port.
    host = headers.get("host", "")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        return "another origin"
    if site in ("same-origin", "none"):
        return None
    # Opening the login page from a link elsewhere is harmless: it contains no data, and no site can read or frame it.
    mode, target = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    if method == "GET" and path == "/login" and mode == "navigate" and target == "document":
        return None
    return "another site"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without its port: `127.0.0.1:8484`, `[::1]:8484`."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def cookie_of(header: str, name: str) -> str:
    """The value of a cookie. A second one with the same name, which another port may have set, is ignored."""
    pairs: Iterable[tuple[str, str, str]] = (part.strip().partition("=") for part in header.split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _make_room(
    entries: dict[str, object] | dict[str, float] | dict[str, tuple[str, float]], limit: int
) -> None:
    """Drop the oldest entries until there is room for one more."""
    while len(entries) >= limit:
        del entries[next(iter(entries))]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(_digest(given), _digest(expected))
