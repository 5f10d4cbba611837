"""Model names in the settings resolve to providers and models."""

from pathlib import Path

import pytest

from agentos.config.settings import Flags, read_settings
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


def test_roles_of_ones_own_have_models_and_limits_like_the_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "agentos.toml"
    path.write_text(
        'max_output_tokens = { planner = 500 }\n[roles]\nplanner = ["gpt-5", "gemini-2.5-flash"]\n'
    )
    settings = read_settings(
        Flags(repo=tmp_path), {"AGENTOS_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    )
    roles = {role.role: role for role in select_models(settings, ("gemini",)).roles}
    assert list(roles) == ["drafter", "reviewer", "planner"]
    assert roles["planner"].models == ("gpt-5", "gemini-2.5-flash")
    assert roles["planner"].max_output_tokens == 500
    offline = select_models(settings, ("gemini",), offline=True).roles
    assert offline[2].models == offline[0].models
