"""Helpers of the writers: sections, bullet lists, identifiers made of sentences."""

import re
from collections.abc import Collection, Mapping, Sequence

from agentos.offline.rules.markdown import read_document
from agentos.offline.rules.verdict import Gap

NOTE = (
    "> Written by `offline-rules-1`, a rule engine and not a language model: it arranges the words of the "
    "{source} by fixed rules. Read it as a demonstration, not as advice."
)
UNDESCRIBED = "Not described yet"
UNNAMED = "not named yet"
REVIEWER_LINE = re.compile(
    r"offline-rules|verdict|rationale|^\W*(round|review\w*|feedback|blocking|resolved)\b", re.I
)
LABEL = re.compile(r"\bR\d+\b")
LIST_MARK = re.compile(r"^(?:[-*+]|\d+[.)])\s+")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+|\d+")
STOP_WORD_LIST = (
    "a an and are as at be been by can do does for from has have if in into is it its make makes more must "
    "need needs no not of on or shall should so than that the their then they this to too was when which "
    "while will with without"
)
STOP_WORDS = frozenset(STOP_WORD_LIST.split())
KINDS = (
    ("an endpoint", re.compile(r"^(GET|POST|PUT|PATCH|DELETE|HEAD) /|^/\w")),
    ("a header", re.compile(r"^[A-Z][a-z]+(-[A-Z][a-z]+)+$")),
    ("a flag", re.compile(r"^--?\w")),
    ("a field", re.compile(r"^\w+(\.\w+)+$")),
    ("a command", re.compile(r"^[a-z]+ [a-z]")),
    ("an action on the screen", re.compile(r"^[A-Z][a-z]+ \w")),
)


def gaps_in(feedback: str) -> frozenset[Gap]:
    folded = feedback.casefold()
    return frozenset(gap for gap in Gap if gap.value in folded)


def settled_gaps(draft: str, requirements: int) -> frozenset[Gap]:
    """Gaps that an earlier revision has closed: their feedback is gone, and what it decided must stay."""
    section = read_document(draft).section("Requirements")
    is_shorter = section is not None and any(
        f"**R{n}**" not in section.body for n in range(1, requirements + 1)
    )
    return frozenset({Gap.VAGUE}) if is_shorter else frozenset()


def free_remarks(feedback: str) -> tuple[str, ...]:
    """The lines of the feedback that a person wrote, not a rule of the reviewer."""
    lines = (LIST_MARK.sub("", line.strip()) for line in feedback.splitlines())
    kept = (line for line in lines if line and not line.startswith("#") and not REVIEWER_LINE.search(line))
    return tuple(dict.fromkeys(line for line in kept if not gaps_in(line)))


def merge(previous: str, fresh: Mapping[str, str], rewritten: Collection[str]) -> dict[str, str]:
    """Keeps the sections of the previous draft, a person's edits included, except for those to rewrite."""
    sections = read_document(previous).sections
    old = {section.heading: section.body.strip() for section in sections if section.heading}
    kept = {name: body if name in rewritten else old.get(name, body) for name, body in fresh.items()}
    return kept | {name: body for name, body in old.items() if name not in fresh}


def write_document(title: str, note: str, previous: str, sections: Mapping[str, str]) -> str:
    """The whole document, or of a revision only the sections that differ from the previous draft."""
    old = {section.heading: section.body.strip() for section in read_document(previous).sections}
    changed = {name: body for name, body in sections.items() if old.get(name) != body.strip()}
    if not previous or not changed:
        return join_sections(title, note, sections)
    return "\n\n".join(f"## {name}\n\n{body}" for name, body in changed.items()) + "\n"


def join_sections(title: str, note: str, sections: Mapping[str, str]) -> str:
    bodies = [f"## {name}\n\n{body}" for name, body in sections.items()]
    return "\n\n".join([f"# {title}", note, *bodies]) + "\n"


def bullets(lines: Sequence[str], otherwise: str) -> str:
    return "\n".join(f"- {line}" for line in lines) if lines else otherwise


def slug(text: str, length: int) -> str:
    return "_".join(list(dict.fromkeys(_keywords(text)))[:length]) or "change"


def pair_up(texts: Sequence[str], partners: Sequence[str]) -> dict[str, str]:
    """Pairs each text with the partner that shares most keywords, at least two; no partner is used twice."""
    words = {text: frozenset(_keywords(text)) for text in (*texts, *partners)}
    scored = [(len(words[text] & words[other]), text, other) for text in texts for other in partners]
    pairs: dict[str, str] = {}
    for score, text, partner in sorted(scored, key=lambda triple: -triple[0]):
        if score >= 2 and text not in pairs and partner not in pairs.values():
            pairs[text] = partner
    return pairs


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "a name or value")


def sentence(text: str) -> str:
    capitalised = text[:1].upper() + text[1:]
    return capitalised if text.endswith((".", "!", "?", ":")) else f"{capitalised}."


def _keywords(text: str) -> tuple[str, ...]:
    return tuple(word for word in (found.lower() for found in WORD.findall(text)) if word not in STOP_WORDS)
