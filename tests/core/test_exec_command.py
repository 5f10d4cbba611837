"""Rendering of exec commands, and the ids of exec items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.planning.exec_command import exec_items, record_name, render_command, workflow_name
from agentos.core.planning.items import Column, is_safe_id


def rendered(*command: str, source: str = "ideas/17-dark mode.md") -> tuple[str, ...]:
    return render_command(command, exec_items([source], "exec-1")[0])


def test_every_placeholder_is_replaced() -> None:
    assert rendered("x", "--file={item}", "{id}", "{name}", "{stem}", "{folder}", "{number}", "{}") == (
        "x",
        "--file=ideas/17-dark mode.md",
        "17-dark-mode",
        "17-dark mode.md",
        "17-dark mode",
        "ideas",
        "1",
        "ideas/17-dark mode.md",
    )


def test_the_placeholders_of_gnu_parallel_and_their_long_names_work() -> None:
    words = ("{.}", "{/}", "{//}", "{/.}", "{#}", "{suffix}", "{item.stem}", "{item.folder}", "{item.name}")
    expected = ("a/b.tar", "b.tar.gz", "a", "b.tar", "1", ".gz", "b.tar", "a", "b.tar.gz")
    assert rendered(*words, source="a/b.tar.gz") == expected


def test_columns_of_a_table_are_placeholders_and_come_before_parts_of_the_same_name() -> None:
    columns = (Column("title", "Dark mode"), Column("name", "mine"), Column("due date", "{item}"))
    item = exec_items(["17.md"], "exec-1", {"17.md": columns})[0]
    assert render_command(("x", "{title}", "{name}", "{item.name}", "{due date}", "{item}"), item) == (
        "x",
        "Dark mode",
        "mine",
        "17.md",
        "{item}",
        "17.md",
    )
    assert render_command(("x", "{title}"), item) == ("x", "Dark mode"), "no item is appended"


def test_without_a_placeholder_the_item_is_the_last_argument() -> None:
    assert rendered("wc", "-w", source="a;rm -rf.md") == ("wc", "-w", "a;rm -rf.md")


def test_other_braces_are_kept() -> None:
    assert rendered("awk", "{print $1}", '{"a": {}}', "{{item}}", "{{x}}", "{unknown}", source="f") == (
        "awk",
        "{print $1}",
        '{"a": f}',
        "{item}",
        "{{x}}",
        "{unknown}",
    )


@pytest.mark.parametrize(
    ("sources", "ids"),
    [
        (["a/x.md", "b/y.md"], ["x", "y"]),
        (["a/x.md", "b/x.md", "x.txt"], ["a-x.md", "b-x.md", "x.txt"]),
        (["X.md", "x.txt"], ["X.md", "x.txt"]),
        (["same", "same"], ["same"]),
        (["a b", "a-b"], ["a-b", "a-b-2"]),
        (["docs/Überblick.md", "naïve café"], ["Uberblick", "naive-cafe"]),
        (["задача-12.md", "日本語.md"], ["12-d4e98add", "item-77710aed"]),
        (["COORDINATOR.md", ".hidden", "-rf"], ["item-COORDINATOR", "hidden", "rf"]),
    ],
)
def test_ids_come_from_file_names_and_are_unique(sources: list[str], ids: list[str]) -> None:
    assert [item.id for item in exec_items(sources, "exec-1")] == ids


@given(st.lists(st.text(min_size=1).filter(lambda text: "\0" not in text), max_size=12))
def test_ids_are_safe_and_unique_for_any_source(sources: list[str]) -> None:
    items = exec_items(sources, "exec-1")
    assert all(is_safe_id(item.id) for item in items)
    assert len({item.id.casefold() for item in items}) == len(items) == len(set(sources))


def test_record_names_depend_on_the_item_and_workflow_names_on_the_command() -> None:
    assert record_name("a/x.md") != record_name("b/x.md") and is_safe_id(record_name("a/x.md"))
    assert workflow_name(["a", "b"]) == workflow_name(("a", "b")) != workflow_name(["a b"])
