"""The commands we print can be typed in the folder in which they are read."""

from dataclasses import replace

import pytest

from agentos.core.protocol.events import RunStarted
from agentos.outputs.resume_command import (
    result_folders,
    resume_command,
    retry_command,
    review_command,
    with_double_budget,
)

STARTED = RunStarted(
    *("r", "lld", "/a b/shop", ("LLD-1",), 1, ("key-1",), "lld-workflow --all --fresh --repo shop", "shop/"),
    cwd="/a b",
)


@pytest.mark.parametrize("here", [None, "/a b"])
def test_in_the_folder_of_the_run_the_command_is_unchanged(here: str | None) -> None:
    assert resume_command(STARTED, here) == "lld-workflow --all --repo shop"
    assert retry_command(STARTED, here) == "lld-workflow --all --repo shop --failed"
    assert review_command(STARTED, here, "LLD-1") == "agentos review LLD-1 --repo shop"
    assert result_folders(STARTED, here, ["docs/x/1.md", "docs/x/2.md"]) == "shop/docs/x"


def test_in_another_folder_the_command_changes_folder_first() -> None:
    assert resume_command(STARTED, "/tmp") == "(cd '/a b' && lld-workflow --all --repo shop)"
    assert retry_command(STARTED, "/tmp") == "(cd '/a b' && lld-workflow --all --repo shop --failed)"
    assert review_command(STARTED, "/tmp") == "agentos review --repo '/a b/shop'"
    assert result_folders(STARTED, "/tmp", ["docs/x/1.md"]) == "'/a b/shop/docs/x'"


def test_in_the_project_folder_paths_are_relative() -> None:
    assert review_command(STARTED, "/a b/shop") == "agentos review"
    assert result_folders(STARTED, "/a b/shop", ["docs/x/1.md"]) == "docs/x"


def test_a_custom_home_is_set_exactly_once() -> None:
    moved = replace(STARTED, home="/h", command="lld-workflow 1")
    assert resume_command(moved, "/tmp") == "(cd '/a b' && AGENTOS_HOME=/h lld-workflow 1)"
    given = replace(moved, command="AGENTOS_HOME=x lld-workflow 1")
    assert resume_command(given, "/tmp") == "(cd '/a b' && AGENTOS_HOME=x lld-workflow 1)"


def test_the_arguments_of_the_program_are_left_alone() -> None:
    exec_run = replace(STARTED, command="agentos exec q --fresh -- agent --fresh")
    assert retry_command(exec_run, "/tmp") == "(cd '/a b' && agentos exec q --failed -- agent --fresh)"


def test_without_a_recorded_folder_the_command_is_unchanged() -> None:
    assert resume_command(replace(STARTED, cwd=""), "/tmp") == "lld-workflow --all --repo shop"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("lld-workflow 1 --budget 0.01 -j 2", "lld-workflow 1 --budget 0.02 -j 2"),
        ("(cd x && lld-workflow --budget=.5)", "(cd x && lld-workflow --budget=1)"),
        ("lld-workflow 1 --budget 0.00001", "lld-workflow 1 --budget 0.00002"),
        ("lld-workflow --all", "lld-workflow --all"),
        (
            "agentos exec a --budget 5 -- p --budget 5",
            "agentos exec a --budget 10 -- p --budget 5",
        ),
    ],
)
def test_a_budget_is_doubled_in_the_options_only(command: str, expected: str) -> None:
    assert with_double_budget(command) == expected
