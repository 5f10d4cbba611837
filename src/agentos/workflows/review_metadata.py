"""The review evidence at the head of a document, from which its standing is derived."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol.results import Verdict

FENCE = "---"


@dataclass(frozen=True, slots=True)
class ReviewMetadata:
    item: str
    status: Verdict
    rounds: int
    drafter: str
    reviewer: str
    date: str
    source: str
    source_sha256: str


def with_metadata(metadata: ReviewMetadata, body: str) -> str:
    """The document with its evidence as front matter: each value is JSON, so also YAML."""
    lines = [f"{name}: {json.dumps(getattr(metadata, name), ensure_ascii=False)}" for name in _NAMES]
    return "\n".join([FENCE, *lines, FENCE, "", body.strip("\n"), ""])


def read_metadata(path: Path) -> ReviewMetadata | None:
    """The evidence of a document that agentos wrote; None for any other file."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.readline().rstrip("\n") != FENCE:
                return None
            found = dict(_fields(file.readline() for _ in range(len(_NAMES) + 1)))
        return ReviewMetadata(**{**found, "status": Verdict(found["status"])})  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _fields(lines: Iterable[str]) -> list[tuple[str, object]]:
    found = []
    for line in lines:
        if line.rstrip("\n") == FENCE:
            break
        name, _, value = line.partition(": ")
        found.append((name, json.loads(value)))
    return found


_NAMES = (
    "item",
    "status",
    "rounds",
    "drafter",
    "reviewer",
    "date",
    "source",
    "source_sha256",
)
