"""Who plays which role of a run, and what keeps somebody from it: for the run itself and for whoever looks ahead."""

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass

from agentos.config.settings import ROLES, Settings
from agentos.core.errors import PreflightError
from agentos.core.planning.model_roles import resolve_role
from agentos.core.planning.worker_task import RoleModel
from agentos.core.quota.budget import PriceList
from agentos.core.quota.credentials import Credential

PACKAGES = {"gemini": "google.genai", "anthropic": "anthropic", "openai": "openai"}


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The roles with their models; `unplayed` is the first that no key can serve."""

    roles: tuple[RoleModel, ...]
    unserved_role: RoleModel | None = None

    @property
    def problem(self) -> str:
        """What keeps a role from being played, and what to do."""
        if self.unserved_role is None:
            return ""
        provider, model = self.unserved_role.providers[0], self.unserved_role.models[0]
        return f"{self.unserved_role.role} = {provider}/{model}, and no key for it: type agentos keys add --provider {provider}"


def select_models(settings: Settings, have: tuple[str, ...], *, offline: bool = False) -> ModelSelection:
    """By the providers that there are keys of; raises where a setting names no model."""
    # Offline there is one model, whatever the settings name.
    roles = tuple(resolve_role(role, (), have) for role in ROLES) if offline else settings.role_models(have)
    return ModelSelection(roles, next((role for role in roles if not set(role.providers) & set(have)), None))


def check_prices(settings: Settings, roles: Iterable[RoleModel], prices: PriceList) -> None:
    """With a budget, every model needs a price."""
    unknown = [model for role in roles for model in role.models if prices.of(model) is None]
    if settings.budget is not None and unknown:
        raise PreflightError(
            f"--budget needs the price of {unknown[0]}: give it in agentos.toml as "
            f'[prices."{unknown[0]}"] with input and output, in dollars per million tokens'
        )


def check_sdks(credentials: Iterable[Credential]) -> None:
    """Every provider that there is a key of needs its SDK."""
    for provider in {credential.provider for credential in credentials if credential.enabled}:
        if importlib.util.find_spec(PACKAGES[provider]) is None:
            raise PreflightError(
                f"there is a key for {provider}, but not its SDK: type pip install 'agentos-runner[{provider}]'"
            )
