"""What of a run begins before its parts are loaded: the template process, whose imports take a second.

Little is loaded here, so that they begin soon: what a worker must not find in its environment has to be known first.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.credentials import Credential
from agentos.core.secrets import Secret
from agentos.engines.launch import Recipe, TemplateProcess
from agentos.models.offline_process import OfflineServer, start_offline_server
from agentos.request import Request
from agentos.settings import Settings, environment, worker_environment
from agentos.storage.credentials import CredentialSource
from agentos.storage.layout import Home

WORKER = "agentos.worker:main"
PRELOAD = (
    "agentos.workflows.untraced",
    "agentos.worker",
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
class Begun:
    """What was read and started; `template` and `server` only where the run has them."""

    source: CredentialSource
    credentials: list[Credential]
    token: Secret | None
    recipe: Recipe
    template: TemplateProcess | None
    server: OfflineServer | None


@contextlib.contextmanager
def begin(request: Request) -> Iterator[Begun]:
    """Nothing that was started outlives this."""
    settings, source = request.settings, _source(request.settings)
    found = [] if request.offline else source.read()
    token = None if request.offline else _token(settings)
    recipe = _recipe(found, [token] if token else [])
    with contextlib.ExitStack() as stack:
        template = server = None
        if settings.engine == "process":
            template = stack.enter_context(contextlib.closing(TemplateProcess(recipe)))
        if request.offline:
            server = start_offline_server(worker_environment(), request.offline_arguments)
            stack.enter_context(contextlib.closing(server))
        yield Begun(source, found, token, recipe, template, server)


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


def _recipe(credentials: list[Credential], tokens: list[Secret]) -> Recipe:
    surroundings = worker_environment((*(credential.secret for credential in credentials), *tokens))
    providers = {credential.provider for credential in credentials} or {"gemini"}
    models = (f"agentos.models.{provider}" for provider in sorted(providers))
    preload = (*PRELOAD, *models, "agentos.models.rehearsal")
    return Recipe(WORKER, preload, surroundings, postponed=POSTPONED)
