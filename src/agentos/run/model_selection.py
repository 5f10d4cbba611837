"""Model selection: which models serve each role, and whether their keys, SDKs and prices exist.

Used by the run itself and by everything that predicts one: forecast and doctor.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentos.config.settings import Settings
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import RoleModel
from agentos.core.quota.budget import PriceList
from agentos.core.quota.credentials import Credential
from agentos.models import has_sdk

DEFAULT_MODELS = {"gemini": "gemini-2.5-pro", "anthropic": "claude-sonnet-4-5", "openai": "gpt-5"}
_PREFIXES = {"gemini": "gemini", "claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai"}


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The models of every role; `unserved_role` is the first role that no key can serve."""

    roles: tuple[RoleModel, ...]
    unserved_role: RoleModel | None = None

    @property
    def problem(self) -> str:
        """Why a role cannot be served and what to type; empty if all can."""
        if self.unserved_role is None:
            return ""
        role = self.unserved_role
        provider = role.providers[0]
        return (
            f"{role.role} = {provider}/{role.models[0]}, but there is no {provider} key: "
            f"type agentos keys add --provider {provider}"
        )


def select_models(settings: Settings, providers: tuple[str, ...], *, offline: bool = False) -> ModelSelection:
    """Select models of the providers that have a key; raises PreflightError for a model of an unknown provider."""
    # The built-in model server has one model, whatever the settings say.
    wanted = {"drafter": settings.drafter, "reviewer": settings.reviewer}
    wanted |= {role.name: role.models for role in settings.roles}
    roles = tuple(
        replace(
            resolve_role(role, () if offline else models, providers),
            max_output_tokens=settings.output_limit(role),
            effort=settings.effort_of(role),
        )
        for role, models in wanted.items()
    )
    _check_effort(roles)
    unserved = next((role for role in roles if not set(role.providers) & set(providers)), None)
    return ModelSelection(roles, unserved)


def _check_effort(roles: Iterable[RoleModel]) -> None:
    """Raise PreflightError for an effort in tokens with OpenAI, which only takes words."""
    for role in roles:
        if role.effort.isdecimal() and "openai" in role.providers:
            raise PreflightError(
                f"effort = {role.effort} for the {role.role}: openai takes a word, such as low, medium or high"
            )


def resolve_role(role: str, models: tuple[str, ...], providers: Iterable[str]) -> RoleModel:
    """The first model is preferred, the others are fallbacks; by default, each provider's default model."""
    if not models:
        available = tuple(providers)
        return RoleModel(role, available, tuple(DEFAULT_MODELS[provider] for provider in available))
    # The first model of each provider counts.
    by_provider: dict[str, str] = {}
    for name in models:
        provider, model = _parse_model(role, name)
        by_provider.setdefault(provider, model)
    return RoleModel(role, tuple(by_provider), tuple(by_provider.values()))


def check_prices(settings: Settings, roles: Iterable[RoleModel], prices: PriceList) -> None:
    """With a budget, every model needs a price."""
    unknown = [model for role in roles for model in role.models if prices.of(model) is None]
    if settings.budget is not None and unknown:
        raise PreflightError(
            f"--budget needs the price of {unknown[0]}: give it in agentos.toml as "
            f'[prices."{unknown[0]}"] with input and output, in dollars per million tokens'
        )


def check_sdks(settings: Settings, credentials: Iterable[Credential]) -> None:
    """Every provider that has an enabled key and serves a role needs its SDK."""
    providers = tuple(dict.fromkeys(key.provider for key in credentials if key.enabled))
    if all(map(has_sdk, providers)):
        return
    serving = {provider for role in select_models(settings, providers).roles for provider in role.providers}
    for provider in providers:
        if provider in serving and not has_sdk(provider):
            raise PreflightError(
                f"there is a key for {provider}, but the provider's SDK is not installed: "
                f"type pip install 'agentos-runner[{provider}]', or choose models of other providers "
                f"(drafter and reviewer in agentos.toml)"
            )


def _parse_model(role: str, name: str) -> tuple[str, str]:
    """Provider and model of `provider/model`, or of a model name whose prefix identifies its provider."""
    provider, slash, model = name.partition("/")
    if slash and provider in DEFAULT_MODELS and model:
        return provider, model
    for prefix, known in _PREFIXES.items():
        if name.startswith(prefix):
            return known, name
    raise PreflightError(
        f"{role} = {name!r}: unknown provider; write it as provider/model, "
        f"with one of {', '.join(DEFAULT_MODELS)}"
    )
