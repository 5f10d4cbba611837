"""Writes a low-level design from the text of an issue."""

from dataclasses import dataclass

from agentos.offline.rules.drafting import (
    NOTE,
    UNDESCRIBED,
    UNNAMED,
    bullets,
    free_remarks,
    gaps_in,
    kind_of,
    merge,
    pair_up,
    sentence,
    settled_gaps,
    slug,
    write_document,
)
from agentos.offline.rules.facts import SourceFacts, gather_facts, is_literal, is_testable
from agentos.offline.rules.markdown import Prompt, code_spans
from agentos.offline.rules.shown_code import ShownCode, apply_suggestions, read_shown_code
from agentos.offline.rules.verdict import Gap

REWRITES = {
    Gap.FAILURES: {"Failure modes"},
    Gap.TESTS: {"Test plan"},
    Gap.QUESTIONS: {"Open questions"},
    Gap.VAGUE: {"Requirements", "Design", "Files", "Test plan"},
}


@dataclass(frozen=True, slots=True)
class Requirement:
    label: str
    text: str


def write_lld(prompt: Prompt) -> str:
    """Drafts a design. What the issue does not say is left out until feedback names the gap."""
    facts = gather_facts(prompt.source)
    gaps = gaps_in(prompt.feedback)
    remarks = free_remarks(prompt.feedback)
    rewritten = {name for gap in gaps for name in REWRITES.get(gap, ())} | ({"Design"} if remarks else set())
    settled = settled_gaps(prompt.draft, len(facts.requirements))
    code = read_shown_code(prompt)
    sections = merge(prompt.draft, _sections(facts, gaps | settled, remarks, code), rewritten)
    sections = {name: apply_suggestions(body, prompt.check) for name, body in sections.items()}
    title, note = f"Low-level design: {facts.title}", NOTE.format(source="issue")
    return write_document(title, note, prompt.draft, sections)


def _sections(
    facts: SourceFacts, gaps: frozenset[Gap], remarks: tuple[str, ...], code: ShownCode
) -> dict[str, str]:
    kept = _requirements(facts, gaps)
    sections = {
        "Context": "\n\n".join(facts.context) or sentence(facts.title),
        "Requirements": _requirement_list(facts, kept),
        "Design": _design(facts, kept, remarks, code),
        "Files": _files(facts, kept, code),
        "Interfaces": _interfaces(facts, kept),
        "Failure modes": _failures(facts, kept, gaps),
        "Test plan": _tests(facts, kept, gaps),
        "Rollout": _rollout(facts),
        "Open questions": _questions(facts, gaps),
    }
    return {name: body for name, body in sections.items() if body}


def _requirements(facts: SourceFacts, gaps: frozenset[Gap]) -> tuple[Requirement, ...]:
    numbered = (Requirement(f"R{n}", text) for n, text in enumerate(facts.requirements, 1))
    return tuple(r for r in numbered if Gap.VAGUE not in gaps or is_testable(r.text))


def _requirement_list(facts: SourceFacts, kept: tuple[Requirement, ...]) -> str:
    texts = {r.text for r in kept}
    dropped = [
        f"{text} No test can verify it, so R{number} goes back to the issue's author."
        for number, text in enumerate(facts.requirements, 1)
        if text not in texts
    ]
    excluded = [*facts.excluded, *dropped]
    goals = "\n".join(f"- **{r.label}** {sentence(r.text)}" for r in kept) or "The issue states none."
    return goals + (f"\n\nNot part of this design:\n\n{bullets(excluded, '')}" if excluded else "")


def _design(
    facts: SourceFacts, kept: tuple[Requirement, ...], remarks: tuple[str, ...], code: ShownCode
) -> str:
    module = code.new_module(slug(facts.title, 3))
    caller = f" It is called from `{code.main}:{code.symbol}`." if code.symbol else ""
    component = (
        f"### Component\n\nOne module, `{module}`, holds the whole change.{caller} The rest of the "
        "product reaches it only through the interfaces below, so it can be switched off as one piece."
    )
    stored = bullets(
        facts.stored,
        "The issue names no new stored data; the module keeps no state of its own.",
    )
    noted = f"\n\n### Remarks addressed\n\n{bullets(remarks, '')}" if remarks else ""
    return f"{component}\n\n### Data\n\n{stored}\n\n### Flow\n\n{_flow(facts, kept)}{noted}"


def _files(facts: SourceFacts, kept: tuple[Requirement, ...], code: ShownCode) -> str:
    """Trusts the paths that the issue names; whether they exist is for the check to find out."""
    if not code.main:
        return "No code of the project was shown, so no file can be named."
    labels = ", ".join(r.label for r in kept) or "-"
    named = [path for path in code.named_in(facts.context) if path != code.main]
    symbol = f"`{code.symbol}`" if code.symbol else "-"
    rows = [
        f"| `{code.main}` | modify | {symbol} | {labels} |",
        *(f"| `{path}` | modify | - | {labels} |" for path in named),
        f"| `{code.new_module(slug(facts.title, 3))}` | add | `apply` (new) | {labels} |",
    ]
    if code.tests:
        rows.append(f"| `{code.tests}/test_{slug(facts.title, 3)}.py` | add | - | {labels} |")
    return "\n".join(["| path | change | symbols | requirements |", "| --- | --- | --- | --- |", *rows])


def _flow(facts: SourceFacts, kept: tuple[Requirement, ...]) -> str:
    if not kept:
        return "No flow can be derived: the issue states no requirement."
    shown = pair_up([r.text for r in kept], facts.acceptance)
    rows = (
        f"| {n} | {r.label} | {_through(r)} | {_cell(sentence(shown.get(r.text, r.text)))} |"
        for n, r in enumerate(kept, 1)
    )
    return "\n".join(
        [
            "| step | requirement | through | is done when |",
            "| --- | --- | --- | --- |",
            *rows,
        ]
    )


def _through(requirement: Requirement) -> str:
    return _cell(", ".join(f"`{name}`" for name in code_spans(requirement.text)) or "the module itself")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _interfaces(facts: SourceFacts, kept: tuple[Requirement, ...]) -> str:
    users: dict[str, list[str]] = {}
    for requirement in kept:
        for name in code_spans(requirement.text):
            users.setdefault(name, []).append(requirement.label)
    named = [f"`{name}`, {kind_of(name)}: used by {', '.join(labels)}" for name, labels in users.items()]
    return bullets(
        named,
        f"No public interface changes. Callers inside use `{slug(facts.title, 3)}.apply()`.",
    )


def _failures(facts: SourceFacts, kept: tuple[Requirement, ...], gaps: frozenset[Gap]) -> str:
    if facts.failures:
        return bullets([sentence(text) for text in facts.failures], "")
    if Gap.FAILURES not in gaps or not kept:
        return f"{UNDESCRIBED}: the issue does not say what happens when a step fails."
    module, labels = slug(facts.title, 3), ", ".join(r.label for r in kept)
    assumed = (
        f"A step of {labels} fails: the user is told which one, that step is rolled back, the others are kept.",
        f"`{module}` hits an unexpected error: the request ends with a message that names the step, the error "
        "is logged once, stored data is left unchanged.",
        "A dependency does not respond within 5 s: the step is abandoned and may be retried.",
        "Two requests change the same thing at once: the first one wins, the second one gets an error.",
    )
    return bullets(assumed, "") + "\n\nThe issue does not cover this; these are assumptions."


def _tests(facts: SourceFacts, kept: tuple[Requirement, ...], gaps: frozenset[Gap]) -> str:
    """Without acceptance criteria, a first draft names tests only for requirements with a literal value."""
    all_named = Gap.TESTS in gaps or facts.acceptance
    named = [r for r in kept if all_named or is_literal(r.text)]
    shown = pair_up([r.text for r in named], facts.acceptance)
    own = [_test(r.text, f" ({r.label})", shown.get(r.text, r.text)) for r in named]
    others = [_test(text, "", text) for text in facts.acceptance if text not in shown.values()]
    rest = [f"A test for {r.label}: {UNNAMED}." for r in kept if r not in named]
    return bullets([*own, *others, *rest], "Tests follow from the requirements; none is named yet.")


def _test(text: str, label: str, expected: str) -> str:
    return f"`test_{slug(text, 6)}`{label} passes when: {sentence(expected)}"


def _rollout(facts: SourceFacts) -> str:
    flag = slug(facts.title, 3)
    migration = (
        "The stored data named above is added, never rewritten, so rolling back needs no migration."
        if facts.stored
        else ""
    )
    steps = [
        f"Ship behind the flag `{flag}`, off by default, with every planned test passing.",
        "Enable it for the team, watch errors for a week, then enable it for everyone.",
        f"To roll back, switch `{flag}` off. {migration}".rstrip(),
    ]
    return "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))


def _questions(facts: SourceFacts, gaps: frozenset[Gap]) -> str:
    if not facts.questions:
        return "None."
    if Gap.QUESTIONS not in gaps:
        return bullets(facts.questions, "")
    decided = (
        "Decided: the smaller change, since no requirement asks for more; the issue's author may overrule it."
    )
    return bullets([f"{text} {decided}" for text in facts.questions], "")
