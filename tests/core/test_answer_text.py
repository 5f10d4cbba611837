"""Wrappings taken off an answer, and revisions that replace sections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentos.core.text.answer_text import Revision, apply_revision, has_sections, unwrap

DRAFT = """# Title

Note.

## Context

Some  words,
exactly so.

```
## not a heading
```

## Test plan

- one

## Rollout

1. ship
"""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("# A", "# A"),
        ("```markdown\n# A\n\ntext\n```", "# A\n\ntext"),
        ("<think>hm\n# B</think>\n\n# A", "# A"),
        ("<THINKING>hm</THINKING>```\n# A\n```\n", "# A"),
        ("<think>cut off before it", ""),
        ("```\na\n```\n\ntext\n\n```\nb\n```", "```\na\n```\n\ntext\n\n```\nb\n```"),
        ("# A\n\n<think>part of the text</think>", "# A\n\n<think>part of the text</think>"),
    ],
)
def test_thoughts_and_one_fence_around_the_whole_are_taken_off(answer: str, text: str) -> None:
    assert unwrap(answer) == text


def test_a_revision_replaces_its_sections_and_keeps_the_rest_word_for_word() -> None:
    revised = apply_revision(DRAFT, "## Test plan\n\n- one\n- two\n")
    assert revised == DRAFT.replace("- one", "- one\n- two")


def test_a_new_section_follows_the_one_it_follows_in_the_revision() -> None:
    revised = apply_revision(DRAFT, "## TEST PLAN\n\n- three\n\n## Failure modes\n\n- none\n")
    assert [line for line in revised.splitlines() if line.startswith("## ")] == [
        "## Context",
        "## not a heading",
        "## TEST PLAN",
        "## Failure modes",
        "## Rollout",
    ]


def test_remarks_before_the_first_section_are_dropped_and_a_new_title_counts() -> None:
    chatty = apply_revision(DRAFT, "Here are the changes:\n\n## Rollout\n\n1. wait\n")
    assert chatty.startswith("# Title\n\nNote.\n") and "Here are" not in chatty and "1. wait" in chatty
    assert apply_revision(DRAFT, "# New\n\n## Rollout\n\n1. wait\n").startswith("# New\n\n## Context")


def test_a_whole_document_replaces_all_sections() -> None:
    other = DRAFT.replace("ship", "wait").replace("- one", "- nine")
    assert apply_revision(DRAFT, other) == other


def test_a_document_without_sections_is_replaced_as_a_whole() -> None:
    assert apply_revision("only prose", "other prose\n") == "other prose\n"
    assert not has_sections("only prose") and has_sections(DRAFT)


@given(st.text(alphabet="#`~ \nab", max_size=60), st.text(alphabet="#`~ \nab", max_size=60))
def test_any_revision_of_any_text_is_applied(document: str, revision: str) -> None:
    assert apply_revision(document, revision).endswith("\n")


@pytest.mark.parametrize(
    ("section", "description", "concerned"),
    [
        ("Test plan", "", True),
        ("## Test plan", "", True),
        ("6. Test Plan / coverage", "", True),
        ("Tests plan", "", True),
        ("Edge cases", "", True),
        ("Context", "", False),
        ("Rollout", "a `test_two` is missing", True),
        ("Rollout", "a `test_three` is missing", False),
        ("Document", "", False),
        ("Title", "", False),
        ("", "", False),
    ],
)
def test_a_remark_concerns_a_revision_by_its_section_or_by_a_changed_name(
    section: str, description: str, concerned: bool
) -> None:
    after = DRAFT.replace("- one", "- one\n\n### Edge cases\n\n- `test_two`")
    assert Revision(DRAFT, after).concerns(section, description) is concerned


def test_a_removed_section_and_a_new_title_are_changes_but_layout_is_not() -> None:
    assert Revision(DRAFT, DRAFT.partition("## Rollout")[0]).concerns("Rollout", "")
    assert Revision(DRAFT, DRAFT.replace("# Title", "# Other")).concerns("Title", "")
    assert not Revision(DRAFT, DRAFT.replace("Some  words,\n", "Some words, ")).concerns("Context", "")


@given(st.text(), st.text(), st.text(), st.text())
def test_any_remark_on_any_revision_is_judged(before: str, after: str, section: str, words: str) -> None:
    assert not Revision(before, before).concerns(section, words)
    Revision(before, after).concerns(section, words)
