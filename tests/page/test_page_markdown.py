"""Markdown of strangers becomes a tree of allowed elements, whatever it contains."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.page.item_view import MAX_DIFF_LINES, diff_lines
from agentos.page.markdown import ELEMENTS, Node, parse_markdown

from .xss_vectors import VECTORS


def walk(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if not isinstance(node, str):
            yield from walk(node[2])  # type: ignore[arg-type]


def check(nodes: list[Node]) -> None:
    for node in walk(nodes):
        if isinstance(node, str):
            continue
        name, attributes, _ = node
        assert name in ELEMENTS and isinstance(attributes, dict)
        assert attributes.keys() <= {"href", "start", "align"}
        if "href" in attributes:
            assert attributes["href"].startswith(("http://", "https://", "mailto:"))


@pytest.mark.parametrize("vector", VECTORS)
def test_a_hostile_document_becomes_allowed_elements_and_text(vector: str) -> None:
    check(parse_markdown(vector))
    check(parse_markdown(f"# Title\n\nBefore {vector} after\n\n- {vector}\n"))


@given(st.text(alphabet=st.sampled_from("[]()<>!*_`#-|>\\&;:/ \nabjsx\0\u202e1."), max_size=300))
def test_any_text_becomes_allowed_elements_and_text(text: str) -> None:
    check(parse_markdown(text))


def test_raw_html_is_text_and_an_image_is_its_description() -> None:
    (paragraph,) = parse_markdown("<b>bold</b> ![a cat](http://evil.example/cat.png)")
    assert paragraph == ["p", {}, ["<b>bold</b> ", "[image: a cat, http://evil.example/cat.png]"]]


def test_the_usual_parts_of_a_document_keep_their_meaning() -> None:
    nodes = parse_markdown(
        "# A\n\n1. one\n2. two\n\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n```py\nx = 1\n```\n\n[w](https://example.org)\n"
    )
    assert [node[0] for node in nodes] == ["h1", "ol", "table", "pre", "p"]
    assert ["code", {}, ["x = 1\n"]] in list(walk(nodes))
    assert ["a", {"href": "https://example.org"}, ["w"]] in list(walk(nodes))
    assert ["td", {"align": "right"}, ["2"]] in list(walk(nodes))


@pytest.mark.parametrize("fence", ["---", "+++"])
def test_front_matter_is_shown_as_it_is_and_not_as_a_heading(fence: str) -> None:
    field = "status: approved" if fence == "---" else 'status = "approved"'
    assert parse_markdown(f"{fence}\n{field}\n{fence}\n\n# Title\n") == [
        ["pre", {}, [field]],
        ["h1", {}, ["Title"]],
    ]
    unclosed = parse_markdown(f"{fence}\n{field}\n\n# Title\n")
    assert unclosed[-1] == ["h1", {}, ["Title"]] and unclosed[0][0] != "pre"
    rule = parse_markdown("---\nJust a rule above.\n\n---\n")
    assert rule == [["hr", {}, []], ["p", {}, ["Just a rule above."]], ["hr", {}, []]]


def test_a_huge_document_is_shown_as_plain_text() -> None:
    (block,) = parse_markdown("*a* " * 200_000)
    assert block[0] == "pre"


def test_a_difference_names_what_was_removed_and_added() -> None:
    assert diff_lines(["a", "b"], ["a", "c"]) == [[" ", "a"], ["-", "b"], ["+", "c"]]
    with pytest.raises(Exception, match="more than"):
        diff_lines(["a"] * (MAX_DIFF_LINES + 1), [])
