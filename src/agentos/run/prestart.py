"""Starts the fork server before the rest of the coordinator is loaded, because its imports take a second.

This module imports little, so that the fork server starts early. Credentials are read first: they decide which
variables the workers' environment must not contain.
"""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentos.config.settings import environment, worker_environment
from agentos.core.errors import PreflightError
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.engines.template_client import ForkServerProcess, WorkerSpec
from agentos.models import has_sdk
from agentos.offline.child import OfflineServer, start_offline_server
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home

if TYPE_CHECKING:
    from agentos.run.api import RunRequest

WORKER = "agentos.worker.main:main"
WARM_UP = "agentos.worker.main:warm_up"
WARM_UP_ITEMS = "agentos.worker.warm_up_items:run_warm_up_items"
# LangGraph uses one small part of each; together they are as much code as LangGraph itself.
LAZY_PACKAGES = ("langgraph_sdk", "langsmith.types")
# httpx imports its command-line program if that is installed, with a terminal library.
LEFT_OUT = ("httpx._main",)
PUBLIC_API = "api.github.com"
GH_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Prestarted:
    """What was read and started: `fork_server` for the process engine, `server` for an offline run."""

    source: CredentialSource
    credentials: list[Credential]
    token: Secret | None
    spec: WorkerSpec
    fork_server: ForkServerProcess | None
    server: OfflineServer | None


@contextlib.contextmanager
def prestart(request: "RunRequest") -> Iterator[Prestarted]:
    """Start the fork server and, offline, the model server; both are stopped on exit."""
    settings = request.settings
    source = CredentialSource(
        Home(settings.home).credentials,
        environment(),
        settings.credential_limit,
        settings.key_concurrency,
    )
    credentials = [] if request.offline else source.read()
    token = None
    if settings.github and not request.offline:
        token = github_token(settings.github, settings.github_url, environment())
    spec = _worker_spec(credentials, [token] if token else [])
    with contextlib.ExitStack() as stack:
        fork_server = server = None
        if settings.engine == "process":
            fork_server = stack.enter_context(contextlib.closing(ForkServerProcess(spec)))
        if request.offline:
            server = start_offline_server(worker_environment(), request.offline_arguments)
            stack.enter_context(contextlib.closing(server))
        yield Prestarted(source, credentials, token, spec, fork_server, server)


def _worker_spec(credentials: list[Credential], tokens: list[Secret]) -> WorkerSpec:
    providers = {credential.provider for credential in credentials} or {"gemini"}
    # Without its SDK a client cannot be imported; whether a run needs it is checked later, with the roles.
    return WorkerSpec(
        WORKER,
        preload=tuple(f"agentos.models.{name}.client" for name in sorted(providers) if has_sdk(name)),
        environment=worker_environment((*(credential.secret for credential in credentials), *tokens)),
        lazy=LAZY_PACKAGES,
        left_out=LEFT_OUT,
        warm_up=WARM_UP,
        idle=WARM_UP_ITEMS,
    )


def github_token(repository: str, url: str, environment: Mapping[str, str]) -> Secret:
    """The token in GITHUB_TOKEN or GH_TOKEN, else from `gh`, GitHub's command-line program, if it is logged in."""
    variable = environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN")
    token = (variable or _token_from_gh(urlsplit(url).hostname or "")).strip()
    if token and token.isprintable() and token.isascii():
        return Secret(token)
    raise PreflightError(
        f"no GitHub token for the issues of {repository}: set GITHUB_TOKEN or GH_TOKEN, or run: gh auth login"
    )


def _token_from_gh(host: str) -> str:
    command = ["gh", "auth", "token", *([] if host == PUBLIC_API else ["--hostname", host])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GH_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
