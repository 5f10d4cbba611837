"""The demo's items reach the verdicts that the demo promises."""

import json
from collections.abc import Callable
from importlib import resources
from string import Template

import pytest
from google.genai import types

from agentos.core.planning.review_parser import read_review
from agentos.core.planning.review_points import ReviewPoint, after_review, stuck_reason
from agentos.core.protocol.results import Verdict
from agentos.core.text.answer_text import apply_revision
from agentos.offline.rules.engine import Role, answer_by_rules

from .serving import running

Ask = Callable[[Role, str], str]

ISSUES = {
    "040-epub-export.md": (1, "APPROVED"),
    "041-search-speed.md": (2, "APPROVED"),
    "042-dark-mode.md": (1, "APPROVED"),
    "043-offline-reading.md": (3, "APPROVED"),
    "044-csv-import.md": (1, "APPROVED"),
    "045-modern-onboarding.md": (2, "the same again"),
    "046-duplicate-articles.md": (1, "APPROVED"),
    "047-weekly-digest.md": (2, "APPROVED"),
    "048-api-tokens.md": (1, "APPROVED"),
    "049-rename-tags.md": (3, "APPROVED"),
}
BRIEFS = {
    "17-keyboard-shortcuts.md": (1, "APPROVED"),
    "23-share-a-list.md": (2, "APPROVED"),
    "make-it-stickier.md": (2, "the same again"),
    "quiet-hours.md": (1, "APPROVED"),
}
EVERYTHING = [("lld", f"issues/{name}", end) for name, end in ISSUES.items()]
EVERYTHING += [("issue", f"ideas/active/{name}", end) for name, end in BRIEFS.items()]


def walk(kind: str, source: str, ask: Ask) -> tuple[int, str]:
    """The review loop of the workflows on its own."""
    draft, feedback = "", ""
    points: tuple[ReviewPoint, ...] = ()
    for number in range(1, 6):
        answer = ask(
            Role.DRAFT, _prompt(f"{kind}_draft", source=source, draft=draft, feedback=feedback, length="100")
        )
        draft = apply_revision(draft, answer) if draft else answer
        shown = "\n".join(map(str, points))
        answer = ask(Role.REVIEW, _prompt(f"{kind}_review", source=source, draft=draft, verdict=shown))
        review = read_review(answer, [point.number for point in points])
        if review.verdict is Verdict.APPROVED:
            return number, "APPROVED"
        after = after_review(points, review, max((point.number for point in points), default=0))
        if stuck_reason(points, after):
            return number, "the same again"
        points = after.points
        feedback = "\n".join([f"# Review {number}: needs revision", "", *map(str, points), ""])
    return 5, "no end"


@pytest.mark.parametrize(("kind", "name", "end"), EVERYTHING)
def test_each_item_of_the_demo_ends_as_promised(kind: str, name: str, end: tuple[int, str]) -> None:
    assert walk(kind, _source(name), answer_by_rules) == end


def test_the_demo_has_exactly_the_promised_items() -> None:
    folder = resources.files("agentos.demo_backlog")
    assert sorted(entry.name for entry in (folder / "issues").iterdir()) == sorted(ISSUES)
    assert sorted(entry.name for entry in (folder / "ideas/active").iterdir()) == sorted(BRIEFS)


def test_the_backlog_ends_the_same_way_through_the_sdk() -> None:
    with running() as server:
        client = server.client

        def ask(role: Role, text: str) -> str:
            schema = json.loads(_package_file("prompts/verdict.schema.json")) if role is Role.REVIEW else None
            config = types.GenerateContentConfig(
                response_mime_type="application/json" if schema else None, response_schema=schema
            )
            answer = client.models.generate_content(model="gemini-2.5-pro", contents=text, config=config)
            return answer.text or ""

        for kind, name, end in EVERYTHING:
            assert walk(kind, _source(name), ask) == end, name
        calls = server.ledger()["calls"]
    assert {call["status"] for call in calls} == {200}
    assert len(calls) == 2 * sum(rounds for rounds, _ in (*ISSUES.values(), *BRIEFS.values()))
    assert "Dark mode for the reader" in {call["item"] for call in calls}


def _prompt(name: str, **texts: str) -> str:
    unused = dict.fromkeys(("project", "code", "check", "related"), "")
    return Template(_package_file(f"prompts/{name}.md")).substitute({**unused, **texts})


def _package_file(name: str) -> str:
    return (resources.files("agentos.workflows") / name).read_text("utf-8")


def _source(name: str) -> str:
    return (resources.files("agentos.demo_backlog") / name).read_text("utf-8")
