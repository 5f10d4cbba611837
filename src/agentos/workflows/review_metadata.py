"""Review metadata in a document's front matter: the record from which an item's status is derived."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from agentos.core.protocol.results import Verdict

FENCE = "---"


@dataclass(frozen=True, slots=True)
class ReviewMetadata:
    """Who drafted and reviewed a document, with what verdict, and from which version of its source."""

    item: str
    status: Verdict
    rounds: int
    drafter: str
    reviewer: str
    date: str
    source: str
    source_sha256: str


_FIELD_NAMES = tuple(field.name for field in fields(ReviewMetadata))


def with_metadata(metadata: ReviewMetadata, body: str) -> str:
    """The document with the metadata as front matter. Each value is JSON and therefore also valid YAML."""
    lines = [f"{name}: {json.dumps(getattr(metadata, name), ensure_ascii=False)}" for name in _FIELD_NAMES]
    return "\n".join([FENCE, *lines, FENCE, "", body.strip("\n"), ""])


def read_metadata(path: Path) -> ReviewMetadata | None:
    """The metadata of a document that agentos wrote; None for any other file."""
    found: dict[str, object] = {}
    try:
        with open(path, encoding="utf-8") as file:
            if file.readline().rstrip("\n") != FENCE:
                return None
            for _ in range(len(_FIELD_NAMES) + 1):
                line = file.readline()
                if line.rstrip("\n") == FENCE:
                    break
                name, _, value = line.partition(": ")
                found[name] = json.loads(value)
        return ReviewMetadata(**{**found, "status": Verdict(found["status"])})  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
