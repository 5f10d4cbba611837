"""Makes names out of sentences."""

import re
from collections.abc import Sequence

WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+|\d+")
SMALL_WORDS = (
    "a an and are as at be been by can do does for from has have if in into is it its make makes more must "
    "need needs no not of on or shall should so than that the their then they this to too was when which "
    "while will with without"
)
SMALL = frozenset(SMALL_WORDS.split())
KINDS = (
    ("an endpoint", re.compile(r"^(GET|POST|PUT|PATCH|DELETE|HEAD) /|^/\w")),
    ("a header", re.compile(r"^[A-Z][a-z]+(-[A-Z][a-z]+)+$")),
    ("a flag", re.compile(r"^--?\w")),
    ("a field", re.compile(r"^\w+(\.\w+)+$")),
    ("a command", re.compile(r"^[a-z]+ [a-z]")),
    ("an action on the screen", re.compile(r"^[A-Z][a-z]+ \w")),
)


def telling_words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (found.lower() for found in WORD.findall(text)) if word not in SMALL)


def slug(text: str, length: int) -> str:
    return "_".join(list(dict.fromkeys(telling_words(text)))[:length]) or "change"


def pair_up(texts: Sequence[str], partners: Sequence[str]) -> dict[str, str]:
    """Each text with the partner that shares most telling words, two at least; no partner twice."""
    words = {text: frozenset(telling_words(text)) for text in (*texts, *partners)}
    scored = [(len(words[text] & words[other]), text, other) for text in texts for other in partners]
    pairs: dict[str, str] = {}
    for score, text, partner in sorted(scored, key=lambda triple: -triple[0]):
        if score >= 2 and text not in pairs and partner not in pairs.values():
            pairs[text] = partner
    return pairs


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(name)), "a name or value")


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    return capitalised(text) if text.endswith((".", "!", "?", ":")) else capitalised(text) + "."
