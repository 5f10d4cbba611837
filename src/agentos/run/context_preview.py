"""Previews the part of the project's code that a run would show the models for one issue."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.context import CodeContext
from agentos.codebase.index import CodeIndex
from agentos.codebase.project_code import ProjectCode
from agentos.config.file import ROLES, price_list
from agentos.config.settings import Settings, environment, worker_environment
from agentos.core.errors import AgentosError, NothingMatches, PreflightError
from agentos.core.planning.items import Item, matches
from agentos.core.protocol.results import Usage
from agentos.run.code_setup import CodeSetup
from agentos.run.github_setup import connect_github
from agentos.run.model_selection import select_models
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.workflows.lld import design_path
from agentos.workflows.markdown import read_page
from agentos.workflows.registry import find_workflow

_FOREVER = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class CallPrice:
    """What the context adds to the cost of each call of a role, in dollars; None if the model's price is unknown."""

    role: str
    model: str
    cost: float | None


@dataclass(frozen=True, slots=True)
class ContextPreview:
    """The context of one item. `skipped` counts the files that are left out, by reason."""

    item: Item
    context: CodeContext
    skipped: dict[str, int]
    prices: tuple[CallPrice, ...]


def preview_context(settings: Settings, word: str, echo: Callable[[str], None]) -> ContextPreview:
    """The context that would be sent for the issue that `word` names. Indexes the code; `echo` reports progress."""
    item, text = _find_issue(settings, word, echo)
    if settings.code_tokens == 0:
        raise PreflightError("code_tokens = 0: no code is sent; set it to 8000 in agentos.toml, or remove it")
    Home(settings.home).open()
    with contextlib.ExitStack() as stack:
        code = CodeSetup(settings, worker_environment(), echo).prepare(stack, lambda: None, wait=_FOREVER)
    if code is None:
        raise PreflightError(
            f"{settings.project} has no files except its issues and documents: nothing would be sent"
        )
    context = ProjectCode(code.access, settings.project).context(item.title, text, design_path(item.number))
    with CodeIndex(Path(code.access.index), code.access.snapshot) as index:
        skipped = index.skipped()
    return ContextPreview(item, context, skipped, _prices(settings, context.tokens))


def _find_issue(settings: Settings, word: str, echo: Callable[[str], None]) -> tuple[Item, str]:
    workflow = find_workflow("lld", settings.project)
    github = connect_github(settings, lambda: False, echo)
    if github:
        workflow = github.workflow(workflow)
    items = [candidate.item for candidate in workflow.candidates(settings.project)]
    found = [item for item in items if matches(item.id, word) or item.source == word]
    if not found:
        raise NothingMatches(f"no issue {word}; list the pending ones with: lld-workflow --all --dry-run")
    item = found[0]
    if github:
        return item, github.texts.get(item.source, "")
    return item, read_page(settings.project / item.source, settings.project).body


def _prices(settings: Settings, token_count: int) -> tuple[CallPrice, ...]:
    """Prices for the first model of each role; for Gemini's default models if there is no key yet."""
    known = price_list(settings.prices)
    try:
        source = CredentialSource(Home(settings.home).credentials, environment(), None, None)
        providers = tuple(dict.fromkeys(key.provider for key in source.read() if key.enabled)) or ("gemini",)
        roles = select_models(settings, providers).roles
    except AgentosError:
        return ()
    found = []
    for role in roles:
        if role.role in ROLES and role.models:  # only the roles of the built-in workflows
            price = known.of(role.models[0])
            cost = price.cost_of(Usage(1, token_count)) if price else None
            found.append(CallPrice(role.role, role.models[0], cost))
    return tuple(found)
