"""Puts a document together from named sections."""

import re
from collections.abc import Collection, Mapping, Sequence

from agentos.offline.rules.markdown import read_document
from agentos.offline.rules.verdict import Gap

NOTE = (
    "> Written by `offline-rules-1`, a rule machine and not a language model: it arranges the words of the "
    "{source} by fixed rules. Read it as a demonstration, not as advice."
)
OWN_WORDS = re.compile(r"offline-rules|verdict|rationale|^\W*(round|review\w*|feedback|blocking)\b", re.I)
LIST_MARK = re.compile(r"^(?:[-*+]|\d+[.)])\s+")


def gaps_in(feedback: str) -> frozenset[Gap]:
    said = feedback.casefold()
    return frozenset(gap for gap in Gap if gap.value in said)


def free_remarks(feedback: str) -> tuple[str, ...]:
    """What a person wrote: lines that no rule of the reviewer produced."""
    lines = (LIST_MARK.sub("", line.strip()) for line in feedback.splitlines())
    kept = (line for line in lines if line and not line.startswith("#") and not OWN_WORDS.search(line))
    return tuple(dict.fromkeys(line for line in kept if not gaps_in(line)))


def merge(previous: str, fresh: Mapping[str, str], rewritten: Collection[str]) -> dict[str, str]:
    """A previous draft keeps its words, also a person's edits, save where feedback asks for others."""
    found = read_document(previous).sections
    old = {section.heading: section.body.strip() for section in found if section.heading}
    kept = {name: body if name in rewritten else old.get(name, body) for name, body in fresh.items()}
    return kept | {name: body for name, body in old.items() if name not in fresh}


def page(title: str, note: str, sections: Mapping[str, str]) -> str:
    bodies = [f"## {name}\n\n{body}" for name, body in sections.items()]
    return "\n\n".join([f"# {title}", note, *bodies]) + "\n"


def bullets(lines: Sequence[str], otherwise: str) -> str:
    return "\n".join(f"- {line}" for line in lines) if lines else otherwise
