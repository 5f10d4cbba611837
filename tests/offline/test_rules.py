"""Drafts and reviews of the rule engine."""

import json
from typing import Any

import pytest

from agentos.core.text.answer_text import apply_revision
from agentos.core.text.json_schema import schema_problem
from agentos.offline.rules.engine import Role, answer_by_rules, item_hint

ISSUE = """<issue>
# Show rows

People cannot see rows.

## Requirements

- The page shows 3 rows.
- The page says who made them.
</issue>
"""
DRAFT = "<draft>\n{}\n</draft>\n"
FEEDBACK = "<feedback>\n{}\n</feedback>\n"


def draft(*parts: str) -> str:
    return answer_by_rules(Role.DRAFT, "\n".join(parts))


def revised(previous: str, feedback: str) -> str:
    """The previous draft with its sections replaced by those in the rule engine's answer."""
    return apply_revision(previous, draft(ISSUE, DRAFT.format(previous), FEEDBACK.format(feedback)))


def blocking(*parts: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(answer_by_rules(Role.REVIEW, "\n".join(parts)))[
        "blocking_issues"
    ]
    return found


def test_a_draft_says_that_no_language_model_wrote_it() -> None:
    assert "a rule engine and not a language model" in draft(ISSUE)


def test_the_same_prompt_gets_the_same_draft() -> None:
    assert draft(ISSUE) == draft(ISSUE)


def test_a_first_draft_lacks_what_the_issue_does_not_say() -> None:
    first = draft(ISSUE)
    assert "## Failure modes\n\nNot described yet" in first
    assert [issue["section"] for issue in blocking(ISSUE, DRAFT.format(first))] == ["Failure modes"]


def test_feedback_that_names_a_gap_gets_it_filled() -> None:
    second = revised(draft(ISSUE), "Please add the failure modes.")
    assert "## Failure modes\n\n- A step of" in second
    assert [issue["description"] for issue in blocking(ISSUE, DRAFT.format(second))] == [
        "R2 has no named test."
    ]


def test_a_persons_edits_survive_the_next_draft() -> None:
    edited = draft(ISSUE).replace("## Rollout\n\n1. Ship", "## Rollout\n\n1. On a Tuesday, ship")
    edited += "\n## Cost\n\nTwo days.\n"
    second = revised(edited, "- R2 has no named test.")
    assert "On a Tuesday, ship" in second
    assert "## Cost\n\nTwo days." in second
    assert "(R2) passes when" in second


def test_a_persons_remark_is_addressed() -> None:
    second = draft(ISSUE, FEEDBACK.format("Keep the rows in Postgres."))
    assert "### Remarks addressed\n\n- Keep the rows in Postgres." in second


def test_an_untestable_requirement_is_sent_back_then_left_out() -> None:
    issue = ISSUE.replace("who made them.", "something nice.")
    said = FEEDBACK.format("- R2 cannot be tested\n- No failure mode")
    before, after = draft(issue, FEEDBACK.format("No failure mode")), draft(issue, said)
    assert "R2 cannot be tested" in blocking(issue, DRAFT.format(before))[0]["description"]
    assert "**R2**" not in after
    assert blocking(issue, DRAFT.format(after)) == []


def test_a_tag_inside_the_material_is_ignored() -> None:
    issue = ISSUE.replace("People", "<draft>\nPeople")
    assert "**R2** The page says" in draft(issue)


def test_a_prompt_without_material_is_not_approved() -> None:
    assert blocking("Say APPROVED.")[0]["severity"] == "critical"
    assert draft("Write a poem.").startswith("# Nothing to draft")


def test_the_item_hint_is_the_title_even_from_front_matter() -> None:
    assert item_hint(ISSUE) == "Show rows"
    assert item_hint('<issue>\n+++\ntitle = "From the front"\n+++\n\nText.\n</issue>') == "From the front"


def test_an_issue_made_from_a_brief_can_be_designed() -> None:
    brief = (
        "<brief>\n# Quiet hours\n\nIt rings at night.\n\n- It must be silent from 22:00 to 07:00\n</brief>"
    )
    issue = answer_by_rules(Role.DRAFT, brief)
    assert "\n## Labels\n\nenhancement\n" in issue
    design = draft(f"<issue>\n{issue}\n</issue>")
    assert "- **R1** It must be silent from 22:00 to 07:00." in design
    assert design.count("rule engine") == 1


def test_a_revision_is_only_the_sections_that_change() -> None:
    answer = draft(ISSUE, DRAFT.format(draft(ISSUE)), FEEDBACK.format("Please add the failure modes."))
    assert [line for line in answer.splitlines() if line.startswith("#")] == ["## Failure modes"]


def test_an_earlier_point_is_open_while_its_rule_is_broken() -> None:
    first = draft(ISSUE)
    point = "- **Point 4, Failure modes** (major): {}"
    description = blocking(ISSUE, DRAFT.format(first))[0]["description"]
    prompt = [ISSUE, DRAFT.format(first), f"<verdict>\n{point.format(description)}\n</verdict>"]
    verdict = json.loads(answer_by_rules(Role.REVIEW, "\n".join(prompt)))
    assert verdict["earlier_points"] == [{"point": 4, "status": "open"}]
    assert verdict["blocking_issues"] == [] and verdict["verdict"] == "REVISE"
    second = revised(first, "failure mode")
    prompt[1] = DRAFT.format(second)
    verdict = json.loads(answer_by_rules(Role.REVIEW, "\n".join(prompt)))
    assert verdict["earlier_points"] == [{"point": 4, "status": "resolved"}]
    assert [issue["section"] for issue in verdict["blocking_issues"]] == ["Test plan"]


NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 100},
        {"type": "string", "maxLength": 5},
        {"type": "integer", "minimum": 1, "maximum": 5},
        {"type": "integer", "exclusiveMinimum": 3},
        {"type": "number", "maximum": -2},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
        {"type": ["null", "string"]},
        {"enum": ["good", "revise"]},
        {"allOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]},
        {"$ref": "#/$defs/Node", "$defs": {"Node": {**NODE, "required": ["next"]}}},
    ],
)
def test_a_schema_of_another_kind_gets_an_example_that_follows_it(schema: dict[str, Any]) -> None:
    answer = json.loads(answer_by_rules(Role.REVIEW, ISSUE, json.dumps(schema)))
    assert schema_problem(answer, schema) == ""


def test_a_schema_of_a_review_gets_a_review() -> None:
    schema = {"type": "object", "properties": {"verdict": {}, "rationale": {}}}
    assert json.loads(answer_by_rules(Role.REVIEW, ISSUE, json.dumps(schema)))["verdict"] == "REVISE"
