"""Writes an issue from the text of a brief."""

import re

from agentos.offline.rules.drafting import (
    NOTE,
    bullets,
    free_remarks,
    gaps_in,
    merge,
    pair_up,
    sentence,
    settled_gaps,
    write_document,
)
from agentos.offline.rules.facts import SourceFacts, gather_facts, is_literal, is_testable
from agentos.offline.rules.markdown import Prompt
from agentos.offline.rules.verdict import Gap

REWRITES = {
    Gap.ACCEPTANCE: {"Acceptance criteria"},
    Gap.VAGUE: {"Requirements", "Acceptance criteria"},
    Gap.LABELS: {"Labels"},
}
LABELS = (
    ("bug", re.compile(r"\b(bug|broken|crash\w*|wrong|lost|loses)\b", re.I)),
    ("performance", re.compile(r"\b(slow|latency|speed)\b", re.I)),
    ("security", re.compile(r"\b(password|token|secret|permission|login)\b", re.I)),
    ("accessibility", re.compile(r"\b(contrast|keyboard|screen reader)\b", re.I)),
)


def write_issue(prompt: Prompt) -> str:
    facts = gather_facts(prompt.source)
    gaps = gaps_in(prompt.feedback)
    remarks = free_remarks(prompt.feedback)
    rewritten = {name for gap in gaps for name in REWRITES.get(gap, ())} | ({"Remarks"} if remarks else set())
    settled = settled_gaps(prompt.draft, len(facts.requirements))
    fresh = _sections(facts, gaps | settled, remarks) | {"Labels": ", ".join(_labels(prompt.source))}
    sections = merge(prompt.draft, fresh, rewritten)
    return write_document(facts.title, NOTE.format(source="brief"), prompt.draft, sections)


def _sections(facts: SourceFacts, gaps: frozenset[Gap], remarks: tuple[str, ...]) -> dict[str, str]:
    kept = {f"R{n}": text for n, text in enumerate(facts.requirements, 1)}
    if Gap.VAGUE in gaps:
        kept = {label: text for label, text in kept.items() if is_testable(text)}
    sections = {
        "Problem": "\n\n".join(facts.context) or sentence(facts.title),
        "Requirements": bullets(
            [f"{label}: {sentence(text)}" for label, text in kept.items()],
            "The brief states none.",
        ),
        "Acceptance criteria": _acceptance(facts, kept, gaps),
        "Failure behaviour": bullets(facts.failures, ""),
        "Out of scope": bullets(facts.excluded, ""),
        "Remarks": bullets(remarks, ""),
    }
    return {name: body for name, body in sections.items() if body}


def _acceptance(facts: SourceFacts, kept: dict[str, str], gaps: frozenset[Gap]) -> str:
    """Without criteria in the brief, a first draft has them only for requirements with a literal value."""
    all_named = Gap.ACCEPTANCE in gaps or facts.acceptance
    named = {label: text for label, text in kept.items() if all_named or is_literal(text)}
    shown = pair_up(list(named.values()), facts.acceptance)
    own = [
        f"[ ] {label}: {sentence(shown[text])}"
        if text in shown
        else f"[ ] {label}, as shown to the team: {text}"
        for label, text in named.items()
    ]
    others = [f"[ ] {sentence(text)}" for text in facts.acceptance if text not in shown.values()]
    return bullets([*own, *others], "To be agreed with whoever wrote the brief.")


def _labels(source: str) -> tuple[str, ...]:
    return tuple(label for label, pattern in LABELS if pattern.search(source)) or ("enhancement",)
