"""Which texts can name an item, and so a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.planning.items import is_safe_id, resolve_item


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("LLD-4", "LLD-4"),
        ("lld-4", "LLD-4"),
        ("4", "LLD-4"),
        ("7", None),
        ("04", None),
        ("LLD", None),
        ("", None),
    ],
)
def test_an_item_is_found_in_any_case_or_by_a_unique_number(word: str, meant: str | None) -> None:
    assert resolve_item(word, ["LLD-4", "LLD-7", "ISSUE-7", "plain"]) == meant


@pytest.mark.parametrize("text", ["LLD-42", "ISSUE-17", "a", "a.b_c-d", "x" * 64])
def test_a_plain_name_is_safe(text: str) -> None:
    assert is_safe_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "../../x",
        "/etc/x",
        "a/b",
        "a\0",
        "a\n",
        "\na",
        "x" * 300,
        "🙂",
        "-rf",
        ".",
        "..",
        ".hidden",
        "a b",
        "é",
    ],
)
def test_a_name_that_contains_a_path_is_not_safe(text: str) -> None:
    assert not is_safe_id(text)


@given(st.text(max_size=80))
def test_a_safe_id_is_one_harmless_path_component(text: str) -> None:
    if is_safe_id(text):
        assert text.isascii() and text.isprintable()
        assert not set(text) & set("/\\ \0") and text[0] not in ".-" and len(text) <= 64
