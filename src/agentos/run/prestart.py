"""What of a run begins before its parts are loaded: the template process, whose imports take a second.

Little is loaded here, so that they begin soon: what a worker must not find in its environment has to be known first.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from agentos.config.settings import Settings, environment, worker_environment
from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.engines.template_client import TemplateProcess, WorkerSpec
from agentos.offline.child import OfflineServer, start_offline_server
from agentos.run.request import RunRequest
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home

WORKER = "agentos.worker.main:main"
WARM_UP = "agentos.worker.main:warm_up"
# LangGraph uses one small part of each; all of them together are as much code as LangGraph itself.
LAZY_PACKAGES = ("langgraph_sdk", "langsmith.types")


@dataclass(frozen=True, slots=True)
class Prestarted:
    """What was read and started; `template` and `server` only where the run has them."""

    source: CredentialSource
    credentials: list[Credential]
    token: Secret | None
    spec: WorkerSpec
    template: TemplateProcess | None
    server: OfflineServer | None


@contextlib.contextmanager
def prestart(request: RunRequest) -> Iterator[Prestarted]:
    """Nothing that was started outlives this."""
    settings, source = request.settings, _source(request.settings)
    found = [] if request.offline else source.read()
    token = None if request.offline else _token(settings)
    spec = _worker_spec(found, [token] if token else [])
    with contextlib.ExitStack() as stack:
        template = server = None
        if settings.engine == "process":
            template = stack.enter_context(contextlib.closing(TemplateProcess(spec)))
        if request.offline:
            server = start_offline_server(worker_environment(), request.offline_arguments)
            stack.enter_context(contextlib.closing(server))
        yield Prestarted(source, found, token, spec, template, server)


def _source(settings: Settings) -> CredentialSource:
    return CredentialSource(
        Home(settings.home).credentials,
        environment(),
        settings.credential_limit,
        settings.key_concurrency,
    )


def _token(settings: Settings) -> Secret | None:
    if not settings.github:
        return None
    from agentos.workflows.github.token import github_token

    return github_token(settings.github, settings.github_url, environment())


def _worker_spec(credentials: list[Credential], tokens: list[Secret]) -> WorkerSpec:
    providers = {credential.provider for credential in credentials} or {"gemini"}
    return WorkerSpec(
        WORKER,
        preload=tuple(f"agentos.models.{provider}.client" for provider in sorted(providers)),
        environment=worker_environment((*(credential.secret for credential in credentials), *tokens)),
        lazy=LAZY_PACKAGES,
        warm_up=WARM_UP,
    )
