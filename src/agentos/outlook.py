"""What a planned run would take, from all that is known before it starts."""

from dataclasses import replace

from agentos.core.credentials import Credential
from agentos.core.errors import AgentosError
from agentos.core.experience import Seats
from agentos.core.forecast import Forecast, forecast
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
    home = Home(settings.home)
    try:
        credentials = _credentials(home, settings, offline)
        seats = _seats(settings, credentials)
    except AgentosError:
        # A run would say what is wrong with the keys; a plan can be looked at without any.
        credentials, seats = [], frozenset()
    known = read_experience(home.runs, Kin(workflow, str(settings.project), offline))
    scene = Scene(
        entries=plan.entries,
        credentials=tuple(credentials),
        notes=() if offline else (*read_findings(home.quota), *recent_calls(home.quota)),
        limits=settings.limits(price_list(settings.prices)),
        now=host_clock(),
    )
    like = f"{workflow} with {'--offline' if offline else 'keys'}"
    return replace(forecast(scene, known if offline else known.among(seats)), like=like)


def _credentials(home: Home, settings: Settings, offline: bool) -> list[Credential]:
    source = CredentialSource(
        home.credentials, environment(), settings.credential_limit, settings.key_concurrency
    )
    return source.adjusted(expected_credentials()) if offline else source.read()


def _seats(settings: Settings, credentials: list[Credential]) -> Seats:
    have = tuple(dict.fromkeys(credential.provider for credential in credentials if credential.enabled))
    roles = settings.role_models(have)
    return frozenset(pair for role in roles for pair in zip(role.providers, role.models, strict=True))
