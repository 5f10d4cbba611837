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
PRELOAD = (
    "agentos.workflows.import_tweaks",
    "agentos.worker.main",
    "agentos.models.preloaded",
    "agentos.workflows.preloaded",
    "agentos.workflows.lld",
    "agentos.workflows.issue",
    "encodings.utf_8_sig",
    "langchain_core.tracers.context",
    "langchain_core.tracers.run_collector",
    "langchain_core.tracers.stdout",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.errors",
    "langgraph.graph",
    "langgraph.runtime",
    "tomllib",
    "yaml",
)
POSTPONED = ("langgraph_sdk", "langsmith.types")
"""LangGraph takes one small part of each; all of them is as much code as LangGraph itself."""


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
    spec = _recipe(found, [token] if token else [])
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


def _recipe(credentials: list[Credential], tokens: list[Secret]) -> WorkerSpec:
    surroundings = worker_environment((*(credential.secret for credential in credentials), *tokens))
    providers = {credential.provider for credential in credentials} or {"gemini"}
    models = (f"agentos.models.{provider}.client" for provider in sorted(providers))
    preload = (*PRELOAD, *models, "agentos.models.warmup")
    return WorkerSpec(WORKER, preload, surroundings, lazy=POSTPONED)
