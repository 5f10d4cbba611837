"""What a planned run would take, from all that is known before it starts."""

from dataclasses import replace

from agentos.config.prices import price_list
from agentos.config.settings import Settings, environment
from agentos.core.errors import AgentosError
from agentos.core.forecast.forecast import Forecast, Unknown, forecast
from agentos.core.forecast.history import ModelSet
from agentos.core.forecast.simulation import SimulationInputs
from agentos.core.planning.plan import Plan
from agentos.core.quota.credentials import Credential
from agentos.offline.child import expected_credentials
from agentos.run.model_selection import ModelSelection, select_models
from agentos.storage.clock import host_clock
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.storage.peer_log import read_findings
from agentos.storage.peer_log_views import recent_calls
from agentos.storage.run_history import RunFilter, read_run_history


def forecast_plan(plan: Plan, workflow: str, settings: Settings, *, offline: bool) -> Forecast:
    """Reads only: the keys, what is known of their limits, the newest journals."""
    home, trouble = Home(settings.home), ""
    credentials, seats = list[Credential](), ModelSet()
    try:
        credentials = _credentials(home, settings, offline)
        found = select_models(settings, _providers(credentials), offline=offline)
        seats, trouble = _seats(found), found.problem if _providers(credentials) else ""
    except AgentosError as error:
        # A run would not begin; a plan can be looked at all the same.
        trouble = str(error)
    known = read_run_history(home.runs, RunFilter(workflow, str(settings.project), offline))
    inputs = SimulationInputs(
        entries=plan.entries,
        credentials=tuple(credentials),
        notes=() if offline else (*read_findings(home.quota), *recent_calls(home.quota)),
        limits=settings.limits(price_list(settings.prices)),
        now=host_clock(),
    )
    like = f"{workflow} with {'--offline' if offline else 'keys'}"
    if trouble:
        return Forecast(items=len(plan.entries), runs=known.runs, unknown=Unknown.NO_START, trouble=trouble)
    return replace(forecast(inputs, known if offline else known.among(seats)), like=like)


def _credentials(home: Home, settings: Settings, offline: bool) -> list[Credential]:
    source = CredentialSource(
        home.credentials, environment(), settings.credential_limit, settings.key_concurrency
    )
    return source.adjusted(expected_credentials()) if offline else source.read()


def _providers(credentials: list[Credential]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(credential.provider for credential in credentials if credential.enabled))


def _seats(found: ModelSelection) -> ModelSet:
    return frozenset(pair for role in found.roles for pair in zip(role.providers, role.models, strict=True))
