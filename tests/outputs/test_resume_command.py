"""What goes on with a run can be typed where it is read."""

from dataclasses import replace

import pytest

from agentos.core.protocol.events import RunStarted
from agentos.outputs.resume_command import documents, resume_command, retry_command, review_command

STARTED = RunStarted(
    *("r", "lld", "/a b/shop", ("LLD-1",), 1, ("key-1",), "lld-workflow --all --fresh --repo shop", "shop/"),
    cwd="/a b",
)


@pytest.mark.parametrize("here", [None, "/a b"])
def test_where_the_run_was_started_the_words_are_as_they_were_typed(here: str | None) -> None:
    assert resume_command(STARTED, here) == "lld-workflow --all --repo shop"
    assert retry_command(STARTED, here) == "lld-workflow --all --repo shop --failed"
    assert review_command(STARTED, here, "LLD-1") == "agentos review LLD-1 --repo shop"
    assert documents(STARTED, here, ["docs/x/1.md", "docs/x/2.md"]) == "shop/docs/x"


def test_elsewhere_they_lead_there_first() -> None:
    assert resume_command(STARTED, "/tmp") == "(cd '/a b' && lld-workflow --all --repo shop)"
    assert retry_command(STARTED, "/tmp") == "(cd '/a b' && lld-workflow --all --repo shop --failed)"
    assert review_command(STARTED, "/tmp") == "agentos review --repo '/a b/shop'"
    assert documents(STARTED, "/tmp", ["docs/x/1.md"]) == "'/a b/shop/docs/x'"


def test_in_the_project_itself_its_documents_are_near() -> None:
    assert review_command(STARTED, "/a b/shop") == "agentos review"
    assert documents(STARTED, "/a b/shop", ["docs/x/1.md"]) == "docs/x"


def test_a_home_that_was_moved_is_said_once() -> None:
    moved = replace(STARTED, home="/h", command="lld-workflow 1")
    assert resume_command(moved, "/tmp") == "(cd '/a b' && AGENTOS_HOME=/h lld-workflow 1)"
    said = replace(moved, command="AGENTOS_HOME=x lld-workflow 1")
    assert resume_command(said, "/tmp") == "(cd '/a b' && AGENTOS_HOME=x lld-workflow 1)"


def test_flags_of_ours_do_not_touch_the_words_of_a_program() -> None:
    called = replace(STARTED, command="agentos exec q --fresh -- agent --fresh")
    assert retry_command(called, "/tmp") == "(cd '/a b' && agentos exec q --failed -- agent --fresh)"


def test_records_that_do_not_say_where_a_run_was_started_change_nothing() -> None:
    assert resume_command(replace(STARTED, cwd=""), "/tmp") == "lld-workflow --all --repo shop"
