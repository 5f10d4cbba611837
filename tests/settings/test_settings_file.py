"""Settings files, valid and invalid."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from agentos.config.file import NamedValue, read_file
from agentos.config.settings import Flags, read_settings
from agentos.core.constants import AUTO_PARALLEL
from agentos.core.errors import PreflightError
from agentos.core.quota.budget import Price


def read(folder: Path, text: str) -> dict[str, object]:
    path = folder / "agentos.toml"
    path.write_text(text)
    return read_file(path)


def test_values_are_converted_to_the_types_that_a_run_needs(tmp_path: Path) -> None:
    text = """
        drafter = "gemini-2.5-pro"
        reviewer = ["gemini-2.5-flash", "gpt-5"]
        timeout = 60
        parallel = 10
        github = "owner/shop"
        prices = { "gpt-5" = { input = 1, output = 10.5 } }
    """
    assert read(tmp_path, text) == {
        "drafter": ("gemini-2.5-pro",),
        "reviewer": ("gemini-2.5-flash", "gpt-5"),
        "timeout": 60.0,
        "parallel": 10,
        "github": "owner/shop",
        "prices": (("gpt-5", Price(1.0, 10.5)),),
    }


def test_limits_of_answers_are_for_all_or_for_each_role_or_model(tmp_path: Path) -> None:
    text = """
        max_output_tokens = { drafter = 20000, reviewer = 6000 }
        effort = "low"
        call_timeout = { "my-own-model" = 900 }
    """
    path = tmp_path / "agentos.toml"
    path.write_text(text)
    settings = read_settings(Flags(repo=tmp_path), {"AGENTOS_HOME": str(tmp_path / "home")})
    assert (settings.output_limit("drafter"), settings.output_limit("reviewer")) == (20000, 6000)
    assert settings.effort_of("drafter") == settings.effort_of("reviewer") == "low"
    assert settings.call_timeouts() == {"": 300.0, "my-own-model": 900.0}
    assert read(tmp_path, "effort = { reviewer = 4096 }")["effort"] == (NamedValue("reviewer", "4096"),)


def test_the_template_shows_the_defaults_except_in_its_examples(tmp_path: Path) -> None:
    text = resources.files("agentos.project_template").joinpath("agentos.toml").read_text()
    shown = []
    for block in text.split("\n\n"):
        is_example = False
        for line in block.splitlines():
            is_setting = re.match(r"# (\w+ = |\[)", line)
            if not is_setting:
                is_example = is_example or "Example" in line
            elif not is_example:
                shown.append(line.removeprefix("# "))
    (tmp_path / "agentos.toml").write_text("\n".join(shown))
    (tmp_path / "empty").mkdir()
    environment = {"AGENTOS_HOME": str(tmp_path / "home")}
    settings = replace(read_settings(Flags(repo=tmp_path), environment), held_back=())
    assert settings == replace(read_settings(Flags(repo=tmp_path / "empty"), environment), project=tmp_path)
    assert len(shown) > 10, "the template was parsed"


def test_a_missing_file_has_no_settings(tmp_path: Path) -> None:
    assert read_file(tmp_path / "agentos.toml") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paralel = 3", "unknown setting 'paralel'; known: drafter,"),
        ("parallel = 65", "a whole number from 1 to 64"),
        ("parallel = 2.0", "a whole number from 1 to 64"),
        ("max_parallel = 65", "a whole number from 1 to 64"),
        ("max_parallel = 0", "a whole number from 1 to 64"),
        ("retries = true", "a whole number from 0"),
        ("timeout = 0", "a number from 0.001"),
        ("max_output_tokens = 0", "a whole number from 16"),
        ("max_output_tokens = { writer = 500 }", "a table with drafter and reviewer, or one value for all"),
        ("roles = 'planner'", "a table such as [roles]"),
        ("roles = { drafter = 'gpt-5' }", "drafter and reviewer are separate settings"),
        ("roles = { 'Two Words' = 'gpt-5' }", "a table such as [roles]"),
        ("roles = { planner = 7 }", "a model, or a list of models"),
        ("effort = 'a lot'", "one of minimal, low, medium, high, xhigh, max, or a number of thinking tokens"),
        ("effort = -1", "one of minimal, low"),
        ("call_timeout = 0.5", "a whole number from 1"),
        ("timeout = nan", "a number from 0.001"),
        ("budget = nan", "a number from 1e-06"),
        ("budget = 0", "a number from 1e-06"),
        (f"timeout = 1{'0' * 400}", "a number from 0.001"),
        ("drafter = []", "a model, or a list of models"),
        ('review = "never"', "one of none, draft, verdict, all"),
        ('github = "shop"', '"owner/repository"'),
        ("prices = 3", '[prices."model"] with input and output'),
        ("prices = { m = { input = 1 } }", '[prices."model"] with input and output'),
        ("prices = { m = { input = -1, output = 1 } }", '[prices."model"] with input and output'),
        ("prices = { m = { input = nan, output = 1 } }", '[prices."model"] with input and output'),
        (
            f"prices = {{ m = {{ input = 1{'0' * 400}, output = 1 }} }}",
            '[prices."model"] with input and output',
        ),
        ("\nparallel = 0", "agentos.toml, line 2: invalid parallel"),
        ("parallel =", "Invalid value"),
    ],
)
def test_an_invalid_setting_says_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PreflightError) as refused:
        read(tmp_path, text)
    assert expected in str(refused.value) and "agentos.toml" in str(refused.value)


def test_the_number_of_workers_may_be_left_to_the_run(tmp_path: Path) -> None:
    assert read(tmp_path, 'parallel = "auto"') == {"parallel": AUTO_PARALLEL}
    with pytest.raises(PreflightError, match='expected a whole number from 1 to 64, or "auto"'):
        read(tmp_path, 'parallel = "many"')
