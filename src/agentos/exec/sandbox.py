"""`--sandbox`: runs an item's program in bubblewrap, with its folder writable and the gateway as the only network."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.exec_command import SandboxSpec
from agentos.exec.workspace import Workspace
from agentos.platform_support import SANDBOX_ROOT

PROGRAM = "bwrap"
CHUNK = 65536  # bytes
TRIAL_TIMEOUT = 20  # seconds
# Relative to the user's home folder. What gives access to other machines and accounts is hidden, not just read-only.
HIDDEN_FOLDERS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gh", ".config/gcloud"),
    *(".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome"),
)
HIDDEN_FILES = (".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox of one program. `socket` leads to the gateway; only the user can enter its folder."""

    spec: SandboxSpec
    workspace: Workspace
    socket: Path

    def command(self, command: Sequence[str], environment: dict[str, str]) -> list[str]:
        """The command line that runs `command` inside."""
        return [
            *(PROGRAM, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"),
            *SANDBOX_ROOT,
            *("--tmpfs", "/tmp", "--tmpfs", "/run", "--dir", "/tmp/home"),  # noqa: S108 - a new one, inside
            *self._visible(environment),
            *self._hidden(),
            *self._writable(),
            *("--ro-bind", str(self.socket.parent), str(self.socket.parent)),
            *("--chdir", str(self.workspace.working_dir)),
            *("--setenv", "HOME", "/tmp/home", "--setenv", "TMPDIR", "/tmp"),  # noqa: S108
            *self._git_settings(),
            "--",
            *self._bridged(command),
        ]

    def _hidden(self) -> list[str]:
        user = Path(self.spec.user_home)
        folders = [user / name for name in HIDDEN_FOLDERS if (user / name).is_dir()]
        files = [user / name for name in HIDDEN_FILES if (user / name).is_file()]
        words = [word for folder in folders for word in ("--tmpfs", str(folder))]
        return words + [word for file in files for word in ("--ro-bind", os.devnull, str(file))]

    def _visible(self, environment: dict[str, str]) -> list[str]:
        """Show the project and installed programs that are below /tmp, which the sandbox replaces with its own."""
        named = (self.spec.project, sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
        paths = dict.fromkeys((*named, *environment.get("PATH", "").split(os.pathsep)))
        below = [path for path in paths if path.startswith("/tmp/") and os.path.isdir(path)]  # noqa: S108
        return [word for path in below for word in ("--ro-bind", path, path)]

    def _writable(self) -> list[str]:
        """Make the item's folder writable.

        The home of agentos, which has the keys, stays hidden even if one of the two folders contains the other. The
        folder's `.git` stays read-only: hooks and settings that a program writes there would later run outside the
        sandbox.
        """
        home, folder = Path(self.spec.home), self.workspace.path
        hide = ["--tmpfs", str(home)] if home.is_dir() else []
        agents = [word for path in self.spec.agent_folders for word in ("--bind", path, path)]
        git = ["--ro-bind", str(folder / ".git"), str(folder / ".git")] if (folder / ".git").exists() else []
        bind = ["--bind", str(folder), str(folder), *git]
        inside = home.resolve().is_relative_to(folder.resolve())
        return [*bind, *hide, *agents] if inside else [*hide, *bind, *agents]

    def _git_settings(self) -> list[str]:
        settings = Path(self.spec.user_home) / ".gitconfig"
        return ["--setenv", "GIT_CONFIG_GLOBAL", str(settings)] if settings.is_file() else []

    def _bridged(self, command: Sequence[str]) -> list[str]:
        """The command, behind a local port that leads to the gateway, if there is one."""
        if not self.spec.gateway_port:
            return list(command)
        bridge = (sys.executable, "-P", "-m", "agentos.exec.sandbox_bridge")
        return [*bridge, str(self.spec.gateway_port), str(self.socket), "--", *command]


def check_sandbox() -> None:
    """Raise PreflightError if bubblewrap is missing or does not work on this machine."""
    if shutil.which(PROGRAM) is None:
        raise PreflightError(
            "--sandbox needs bubblewrap, but bwrap is not on the PATH. Install it, for example with: apt install bubblewrap"
        )
    trial = [PROGRAM, "--unshare-all", *SANDBOX_ROOT, "--", "true"]
    try:
        tried = subprocess.run(trial, capture_output=True, text=True, timeout=TRIAL_TIMEOUT, check=False)
        problem = (tried.stderr.strip() or f"exit code {tried.returncode}") if tried.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        raise PreflightError(
            f"--sandbox: bubblewrap does not work here ({problem}); it needs user namespaces, which containers and "
            "some distributions turn off. Allow them, or leave out --sandbox"
        )


@contextlib.asynccontextmanager
async def open_sandbox(spec: SandboxSpec, workspace: Workspace) -> AsyncIterator[Sandbox]:
    """Listen on a socket that leads to the gateway while the context is open."""
    with tempfile.TemporaryDirectory(prefix="agentos-") as folder:
        path = Path(folder) / "gateway"
        server = await asyncio.start_unix_server(
            lambda reader, writer: _forward(spec.gateway_port, reader, writer), path
        )
        try:
            yield Sandbox(spec, workspace, path)
        finally:
            server.close()


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writers = [writer]
    try:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(upstream_writer)
        await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))
    except OSError:
        pass  # the gateway is gone: the program sees a closed connection
    finally:
        for one in writers:
            one.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
