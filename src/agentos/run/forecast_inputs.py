"""Collects everything that a forecast of a planned run needs: keys, their limits, run history."""

from dataclasses import replace

from agentos.codebase.rendering import CHARACTERS_PER_TOKEN
from agentos.codebase.skip_rules import skip_by_name
from agentos.codebase.source_files import ProjectSource
from agentos.config.file import price_list
from agentos.config.settings import Settings, environment, worker_environment
from agentos.core.errors import AgentosError
from agentos.core.forecast.forecast import Forecast, Unknown, forecast
from agentos.core.forecast.simulation import SimulationInputs
from agentos.core.planning.plan import Plan
from agentos.core.quota.credentials import Credential
from agentos.offline.child import expected_credentials
from agentos.platform_support import host_clock
from agentos.run.model_selection import check_prices, select_models
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.storage.peer_log import read_findings
from agentos.storage.peer_log_views import recent_calls
from agentos.storage.run_history import RunFilter, read_run_history
from agentos.workflows.registry import find_workflow


def forecast_plan(plan: Plan, workflow: str, settings: Settings, *, offline: bool) -> Forecast:
    """Forecast calls, tokens, cost and time of the plan. Reads only."""
    home = Home(settings.home)
    history = read_run_history(home.runs, RunFilter(workflow, str(settings.project), offline))
    if any(trace.code_tokens < settings.code_tokens for trace in history.traces):
        history = history.with_code(_code_tokens(workflow, settings))
    exit_code = None
    try:
        credentials = _read_credentials(home, settings, offline)
        providers = tuple(dict.fromkeys(key.provider for key in credentials if key.enabled))
        selection = select_models(settings, providers, offline=offline)
        problem = selection.problem if providers else ""
        if not offline:
            check_prices(settings, selection.roles, price_list(settings.prices))
    except AgentosError as error:
        # The run would not start, but its plan can still be shown.
        problem, exit_code = str(error), error.exit_code
    if problem:
        return Forecast(
            items=len(plan.entries),
            earlier_runs=history.runs,
            unknown=Unknown.NO_START,
            start_problem=problem,
            exit_code=exit_code,
        )
    inputs = SimulationInputs(
        entries=plan.entries,
        credentials=tuple(credentials),
        notes=() if offline else (*read_findings(home.quota), *recent_calls(home.quota)),
        limits=settings.limits(price_list(settings.prices)),
        now=host_clock(),
    )
    if not offline:
        models = (pair for role in selection.roles for pair in zip(role.providers, role.models, strict=True))
        history = history.using_only(frozenset(models))
    run_kind = f"{workflow} with {'--offline' if offline else 'keys'}"
    return replace(forecast(inputs, history), run_kind=run_kind, warnings=selection.warnings)


def _code_tokens(workflow: str, settings: Settings) -> int:
    """The most code that a prompt of the run would show, in tokens: what the settings allow, or all there is."""
    if not find_workflow(workflow, settings.project).uses_code:
        return 0
    snapshot = ProjectSource(settings.project, worker_environment()).take_snapshot()
    size = sum(file.size for file in snapshot.files if skip_by_name(file.path, file.size) is None)
    return min(settings.code_tokens, size // CHARACTERS_PER_TOKEN)


def _read_credentials(home: Home, settings: Settings, offline: bool) -> list[Credential]:
    source = CredentialSource(
        home.credentials, environment(), settings.credential_limit, settings.key_concurrency
    )
    return source.adjusted(expected_credentials()) if offline else source.read()
