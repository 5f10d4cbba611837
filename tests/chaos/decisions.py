"""Human review decisions: the command for each, and checks of what becomes of the item."""

import contextlib
import shlex
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.chaos.backlog import APPROVED, REVISION, front_matter, verdict_documents
from tests.scenarios.harness import ModelServer, RunHarness, RunningCommand


class Act(StrEnum):
    APPROVE = "approve"
    SEND_BACK = "send back"
    REJECT = "reject"
    EDIT = "edit and approve"


LINEAGE = {
    Act.APPROVE: ("001-issue", "002-draft", "003-verdict"),
    Act.SEND_BACK: ("001-issue", "002-draft", "003-feedback", "004-draft", "005-verdict"),
    Act.REJECT: ("001-issue", "002-draft", "003-feedback"),
    Act.EDIT: ("001-issue", "002-draft", "003-edited", "004-verdict"),
}
CALLS = {Act.APPROVE: 2, Act.SEND_BACK: 3, Act.REJECT: 1, Act.EDIT: 2}


def comment_on(number: int) -> str:
    """The reviewer's comment, a text that occurs nowhere else."""
    return f"Review comment on thing {number}."


def decide(harness: RunHarness, number: int, act: Act, **env: Any) -> RunningCommand:
    """Start `agentos review` with this decision."""
    options = {
        Act.APPROVE: ("--approve",),
        Act.SEND_BACK: ("--send-back", comment_on(number)),
        Act.REJECT: ("--reject", comment_on(number)),
        Act.EDIT: ("--edit", "--approve"),
    }[act]
    folder = harness.root / "editing"
    folder.mkdir(exist_ok=True)
    extra_env = {"EDITOR": shlex.quote(str(_editor(harness, number))), "TMPDIR": str(folder), **env}
    return harness.start("review", f"LLD-{number}", *options, program="agentos", **extra_env)


def _editor(harness: RunHarness, number: int) -> Path:
    """A script that stands in for the reviewer's editor and appends the comment."""
    path = harness.root / "editing" / f"editor-{number}"
    path.write_text(f'#!/bin/sh\nprintf "\\n{comment_on(number)}\\n" >> "$1"\n')
    path.chmod(0o755)
    return path


def notes(harness: RunHarness, number: int) -> dict[str, str]:
    """The notes in an item's checkpoint, read from a copy, since opening a database may change it."""
    with tempfile.TemporaryDirectory(dir=harness.root) as folder:
        for path in harness.home.glob(f"checkpoints/*/lld_workflow_{number}.db*"):
            with contextlib.suppress(FileNotFoundError):  # deleted by its worker meanwhile
                shutil.copy(path, folder)
        copy = Path(folder) / f"lld_workflow_{number}.db"
        if not copy.exists():
            return {}
        with contextlib.closing(sqlite3.connect(copy)) as database, contextlib.suppress(sqlite3.Error):
            return dict(database.execute("SELECT name, text FROM agentos_notes"))
    return {}


def is_waiting(harness: RunHarness, number: int) -> bool:
    """Whether the item is parked and undecided."""
    all_notes = notes(harness, number)
    gate = 1 + max((int(name.split()[1]) for name in all_notes if name.startswith("decision ")), default=0)
    return f'"number": {gate}' in all_notes.get("parking", "")


def check_decisions(harness: RunHarness, decided: Mapping[int, Act]) -> Iterator[str]:
    """Check by the files that every decision was applied exactly once and as given."""
    documents = [(path.stem, path.read_text()) for path in verdict_documents(harness.project)]
    counts, texts = Counter(name for name, _ in documents), dict(documents)
    for number, act in decided.items():
        name = f"LLD-{number:03}"
        text, expected = texts.get(name, ""), REVISION if act is Act.REJECT else APPROVED
        if counts[name] != 1:
            yield f"{name}: {counts[name]} documents"
        if (status := front_matter(text).get("status", "").strip('"')) != expected:
            yield f"{name}: {status or 'no verdict'} after {act}"
        if act in (Act.REJECT, Act.EDIT) and text.count(comment_on(number)) != 1:
            yield f"{name}: the comment occurs {text.count(comment_on(number))} times"
        yield from _check_lineage(harness, number, act)


def _check_lineage(harness: RunHarness, number: int, act: Act) -> Iterator[str]:
    folder = harness.project / "docs/lineage/done" / f"{number}-lld"
    pages = {path.stem: path.read_text() for path in sorted(folder.glob("[0-9]*.md"))}
    if tuple(pages) != LINEAGE[act]:
        yield f"LLD-{number}: lineage {', '.join(pages)} after {act}"
    commented = [
        name
        for name, text in pages.items()
        if comment_on(number) in text and name[4:] in ("feedback", "edited")
    ]
    if len(commented) != (act is not Act.APPROVE):
        yield f"LLD-{number}: the comment is in {commented or 'no page'} after {act}"


def check_call_counts(server: ModelServer, decided: Mapping[int, Act], kills: int) -> Iterator[str]:
    """Check the number of calls for each decision, allowing one more per kill."""
    answered = Counter(call["item"] for call in server.answered())
    for number, act in decided.items():
        calls = answered[f"Thing {number} can be used"]
        if not CALLS[act] <= calls <= CALLS[act] + kills:
            yield f"LLD-{number}: {calls} calls were answered after {act}, with {kills} kills"
