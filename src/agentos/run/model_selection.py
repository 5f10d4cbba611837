"""Model selection: which models serve each role, and whether their keys, SDKs and prices exist.

Used by the run itself and by everything that predicts one: forecast and doctor.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from agentos.config.settings import Settings
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import RoleModel
from agentos.core.quota.budget import PriceList
from agentos.models import has_sdk

DEFAULT_MODELS = {"gemini": "gemini-2.5-pro", "anthropic": "claude-sonnet-4-5", "openai": "gpt-5"}
_PREFIXES = {"gemini": "gemini", "claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai"}


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The models of every role.

    `unserved_role` is the first role that no key can serve. `missing_sdks` are the providers that have a key and would
    serve a role if their SDK were installed.
    """

    roles: tuple[RoleModel, ...]
    unserved_role: RoleModel | None = None
    missing_sdks: tuple[str, ...] = ()

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

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which keys the run passes over, and what to type to use them."""
        return tuple(
            f"The {provider} keys are not used, because the provider's SDK is not installed: type {install_sdk(provider)}"
            for provider in self.missing_sdks
        )


def select_models(
    settings: Settings,
    providers: tuple[str, ...],
    *,
    offline: bool = False,
    has_sdk: Callable[[str], bool] = has_sdk,
) -> ModelSelection:
    """Select models of the providers that have a key and whose SDK is installed.

    Raises PreflightError for a model of an unknown provider, and for a role whose only keys need a missing SDK.
    """
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
    if offline:
        return ModelSelection(roles, unserved)
    wanted_providers = {provider for role in roles for provider in role.providers}
    missing = (provider for provider in providers if provider in wanted_providers and not has_sdk(provider))
    roles = tuple(_usable(role, providers, has_sdk) for role in roles)
    return ModelSelection(roles, unserved, tuple(missing))


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


def _usable(role: RoleModel, providers: Collection[str], has_sdk: Callable[[str], bool]) -> RoleModel:
    """The role without the providers whose SDK is missing; raises PreflightError if no other one has a key."""
    served = [provider for provider in role.providers if provider in providers]
    if not served:
        return role
    if not any(map(has_sdk, served)):
        raise PreflightError(
            f"there is a key for {served[0]}, but the provider's SDK is not installed: type "
            f"{install_sdk(served[0])}, or choose models of other providers (drafter and reviewer in agentos.toml)"
        )
    pairs = [pair for pair in zip(role.providers, role.models, strict=True) if has_sdk(pair[0])]
    return replace(role, providers=tuple(pair[0] for pair in pairs), models=tuple(pair[1] for pair in pairs))


def install_sdk(provider: str) -> str:
    """The command that installs the provider's SDK."""
    return f"pip install 'agentos-runner[{provider}]'"


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
