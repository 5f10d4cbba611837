"""Recognises a redo: an approved item that is processed again. Its old documents stay in place until it has finished."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from agentos.core.planning.items import FINISHED, Item
from agentos.regular_files import UnsafeFile, read_regular
from agentos.workflows.base import WorkflowMembers

REPLACES = "replaces"
"""Name of the note that holds the fingerprint of the documents that a redo replaces."""


def fingerprint(workflow: WorkflowMembers, project: Path, item: Item) -> str:
    """A hash of the current content of the item's approved documents."""
    digest = hashlib.sha256()
    for name in workflow.approved_documents(project, item):
        try:
            content = hashlib.sha256(read_regular(project / name, project)).hexdigest()
        except (OSError, UnsafeFile):
            content = "-"
        digest.update(f"{content} {name}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def is_redo(notes: Mapping[str, str], workflow: WorkflowMembers, project: Path, item: Item) -> bool:
    """Whether an approved item with these checkpoint notes is being redone, which holds as long as the documents that
    it replaces are unchanged."""
    if REPLACES not in notes or notes.get("node") == FINISHED:
        return False
    return notes[REPLACES] == fingerprint(workflow, project, item)
