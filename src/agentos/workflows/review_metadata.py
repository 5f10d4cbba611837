"""Review metadata in a document's front matter: the record from which an item's status is derived."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from agentos.core.protocol.results import Verdict
from agentos.regular_files import UnsafeFile, read_start

FENCE = "---"
_MAX_METADATA = 65_536  # bytes


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


def read_metadata(path: Path, root: Path | None = None) -> ReviewMetadata | None:
    """The metadata of a document that agentos wrote; None for any other file. `root` is the project."""
    found: dict[str, object] = {}
    try:
        # The end may be cut off within a character; the metadata is at the start.
        first, *lines = read_start(path, root, _MAX_METADATA).decode("utf-8", "replace").split("\n")
        if first != FENCE:
            return None
        for line in lines[: len(_FIELD_NAMES) + 1]:
            if line == FENCE:
                break
            name, _, value = line.partition(": ")
            found[name] = json.loads(value)
        return ReviewMetadata(**{**found, "status": Verdict(found["status"])})  # type: ignore[arg-type]
    except (OSError, UnsafeFile, ValueError, KeyError, TypeError, RecursionError):
        return None
