"""Model names in the settings resolve to providers and models."""

from pathlib import Path

import pytest

from agentos.config.settings import Flags, Settings, read_settings
from agentos.core.errors import PreflightError
from agentos.core.planning.worker_task import RoleModel
from agentos.run.model_selection import resolve_role, select_models


def test_without_a_setting_every_provider_with_a_key_serves_its_default_model() -> None:
    assert resolve_role("drafter", (), ("openai", "gemini")) == RoleModel(
        "drafter", ("openai", "gemini"), ("gpt-5", "gemini-2.5-pro")
    )


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openai/llama3.3:70b", "openai", "llama3.3:70b"),
        ("openai/meta-llama/Llama-3.3-70B", "openai", "meta-llama/Llama-3.3-70B"),
        ("gemini-2.5-flash", "gemini", "gemini-2.5-flash"),
        ("claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
        ("gpt-5-mini", "openai", "gpt-5-mini"),
        ("o3", "openai", "o3"),
    ],
)
def test_a_model_name_determines_its_provider(name: str, provider: str, model: str) -> None:
    assert resolve_role("reviewer", (name,), ()) == RoleModel("reviewer", (provider,), (model,))


def test_the_first_model_is_preferred_and_the_others_are_fallbacks_in_order() -> None:
    resolved = resolve_role("drafter", ("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro"), ("gemini",))
    assert resolved.providers == ("openai", "anthropic", "gemini")
    assert resolved.models == ("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro")


def test_of_two_models_of_one_provider_the_first_is_used() -> None:
    resolved = resolve_role("drafter", ("gpt-5", "gemini-2.5-pro", "gpt-5-mini"), ())
    assert (resolved.providers, resolved.models) == (("openai", "gemini"), ("gpt-5", "gemini-2.5-pro"))


@pytest.mark.parametrize("name", ["llama3", "mistral/large", "anthropic/", "/gpt-5", ""])
def test_a_model_of_an_unknown_provider_says_how_to_write_it(name: str) -> None:
    with pytest.raises(PreflightError, match=r"reviewer = .*write it as provider/model"):
        resolve_role("reviewer", (name,), ("gemini",))


def settings_of(tmp_path: Path, text: str = "") -> Settings:
    (tmp_path / "agentos.toml").write_text(text)
    return read_settings(
        Flags(repo=tmp_path), {"AGENTOS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    )


def only_gemini(provider: str) -> bool:
    return provider == "gemini"


def test_a_provider_without_its_sdk_is_left_out_while_another_serves_the_role(tmp_path: Path) -> None:
    chosen = select_models(settings_of(tmp_path), ("anthropic", "gemini"), has_sdk=only_gemini)
    assert {role.providers for role in chosen.roles} == {("gemini",)} and chosen.missing_sdks == (
        "anthropic",
    )
    assert not chosen.problem
    settings = settings_of(tmp_path, 'drafter = ["gpt-5", "gemini-2.5-pro"]\nreviewer = "gemini-2.5-pro"\n')
    chosen = select_models(settings, ("anthropic", "gemini"), has_sdk=only_gemini)
    assert chosen.roles[0].models == ("gemini-2.5-pro",), "a key for gpt-5 that arrives later cannot be used"
    assert chosen.missing_sdks == (), "no role wants an anthropic model"


def test_a_role_whose_only_key_needs_a_missing_sdk_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"key for openai, but .*pip install 'agentos-runner\[openai\]'"):
        select_models(settings_of(tmp_path, 'drafter = "gpt-5"\n'), ("openai", "gemini"), has_sdk=only_gemini)
    with pytest.raises(PreflightError, match="key for anthropic"):
        select_models(settings_of(tmp_path), ("anthropic",), has_sdk=only_gemini)
    no_key = select_models(settings_of(tmp_path, 'drafter = "gpt-5"\n'), ("gemini",), has_sdk=only_gemini)
    assert "there is no openai key" in no_key.problem


def test_roles_of_ones_own_have_models_and_limits_like_the_built_in_ones(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, 'max_output_tokens = { planner = 500 }\n[roles]\nplanner = ["gpt-5", "gemini-2.5-flash"]\n'
    )
    chosen = select_models(settings, ("gemini",), has_sdk=lambda provider: True)
    roles = {role.role: role for role in chosen.roles}
    assert list(roles) == ["drafter", "reviewer", "planner"]
    assert roles["planner"].models == ("gpt-5", "gemini-2.5-flash")
    assert roles["planner"].max_output_tokens == 500
    offline = select_models(settings, ("gemini",), offline=True).roles
    assert offline[2].models == offline[0].models
