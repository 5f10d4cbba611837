"""What a planned run would take, from all that is known before it starts."""

from dataclasses import replace

from agentos.casting import Cast, cast_roles
from agentos.core.credentials import Credential
from agentos.core.errors import AgentosError
from agentos.core.experience import Seats
from agentos.core.forecast import Forecast, Unknown, forecast
from agentos.core.plan import Plan
from agentos.core.trial import Scene
from agentos.models.offline_process import expected_credentials
from agentos.models.prices import price_list
from agentos.settings import Settings, environment
from agentos.storage.clock import host_clock
from agentos.storage.credentials import CredentialSource
from agentos.storage.history import Kin, read_experience
from agentos.storage.hostlog import read_findings
from agentos.storage.layout import Home
from agentos.storage.recent import recent_calls


def look_ahead(plan: Plan, workflow: str, settings: Settings, *, offline: bool) -> Forecast:
    """Reads only: the keys, what is known of their limits, the newest journals."""
    home, trouble = Home(settings.home), ""
    credentials, seats = list[Credential](), Seats()
    try:
        credentials = _credentials(home, settings, offline)
        found = cast_roles(settings, _providers(credentials), offline=offline)
        seats, trouble = _seats(found), found.trouble if _providers(credentials) else ""
    except AgentosError as error:
        # A run would not begin; a plan can be looked at all the same.
        trouble = str(error)
    known = read_experience(home.runs, Kin(workflow, str(settings.project), offline))
    scene = Scene(
        entries=plan.entries,
        credentials=tuple(credentials),
        notes=() if offline else (*read_findings(home.quota), *recent_calls(home.quota)),
        limits=settings.limits(price_list(settings.prices)),
        now=host_clock(),
    )
    like = f"{workflow} with {'--offline' if offline else 'keys'}"
    if trouble:
        return Forecast(items=len(plan.entries), runs=known.runs, unknown=Unknown.NO_START, trouble=trouble)
    return replace(forecast(scene, known if offline else known.among(seats)), like=like)


def _credentials(home: Home, settings: Settings, offline: bool) -> list[Credential]:
    source = CredentialSource(
        home.credentials, environment(), settings.credential_limit, settings.key_concurrency
    )
    return source.adjusted(expected_credentials()) if offline else source.read()


def _providers(credentials: list[Credential]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(credential.provider for credential in credentials if credential.enabled))


def _seats(found: Cast) -> Seats:
    return frozenset(pair for role in found.roles for pair in zip(role.providers, role.models, strict=True))
