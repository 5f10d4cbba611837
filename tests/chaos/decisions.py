"""A person's decisions: how each is said, and what must become of its item."""

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


def words_on(number: int) -> str:
    """What the person says, found in nothing else."""
    return f"The words of a person on thing {number}."


def decide(harness: RunHarness, number: int, act: Act, **env: Any) -> RunningCommand:
    """The command of a person."""
    said = {
        Act.APPROVE: ("--approve",),
        Act.SEND_BACK: ("--send-back", words_on(number)),
        Act.REJECT: ("--reject", words_on(number)),
        Act.EDIT: ("--edit", "--approve"),
    }[act]
    place = harness.root / "editing"
    place.mkdir(exist_ok=True)
    extra_env = {"EDITOR": shlex.quote(str(_editor(harness, number))), "TMPDIR": str(place), **env}
    return harness.start("review", f"LLD-{number}", *said, program="agentos", **extra_env)


def _editor(harness: RunHarness, number: int) -> Path:
    """An editor that does by itself what a person would do."""
    path = harness.root / "editing" / f"editor-{number}"
    path.write_text(f'#!/bin/sh\nprintf "\\n{words_on(number)}\\n" >> "$1"\n')
    path.chmod(0o755)
    return path


def notes(harness: RunHarness, number: int) -> dict[str, str]:
    """What stands in an item's checkpoint, read from a copy: whoever opens a database may change it."""
    with tempfile.TemporaryDirectory(dir=harness.root) as folder:
        for path in harness.home.glob(f"checkpoints/*/lld_workflow_{number}.db*"):
            shutil.copy(path, folder)
        copy = Path(folder) / f"lld_workflow_{number}.db"
        if not copy.exists():
            return {}
        with contextlib.closing(sqlite3.connect(copy)) as database, contextlib.suppress(sqlite3.Error):
            return dict(database.execute("SELECT name, text FROM agentos_notes"))
    return {}


def waits(harness: RunHarness, number: int) -> bool:
    """Parked, and nobody has decided."""
    found = notes(harness, number)
    gate = 1 + max((int(name.split()[1]) for name in found if name.startswith("decision ")), default=0)
    return f'"number": {gate}' in found.get("parking", "")


def unheeded(harness: RunHarness, decided: Mapping[int, Act]) -> Iterator[str]:
    """Decisions that were lost, applied twice, or became something else, as the files show it."""
    documents = [(path.stem, path.read_text()) for path in verdict_documents(harness.project)]
    counted, texts = Counter(name for name, _ in documents), dict(documents)
    for number, act in decided.items():
        name = f"LLD-{number:03}"
        text, wanted = texts.get(name, ""), REVISION if act is Act.REJECT else APPROVED
        if counted[name] != 1:
            yield f"{name}: {counted[name]} documents"
        if (status := front_matter(text).get("status", "").strip('"')) != wanted:
            yield f"{name}: {status or 'no verdict'} after {act}"
        if act in (Act.REJECT, Act.EDIT) and text.count(words_on(number)) != 1:
            yield f"{name}: the person's words stand in it {text.count(words_on(number))} times"
        yield from _lineage(harness, number, act)


def _lineage(harness: RunHarness, number: int, act: Act) -> Iterator[str]:
    folder = harness.project / "docs/lineage/done" / f"{number}-lld"
    pages = {path.stem: path.read_text() for path in sorted(folder.glob("*.md"))}
    if tuple(pages) != LINEAGE[act]:
        yield f"LLD-{number}: lineage {', '.join(pages)} after {act}"
    said = [
        name
        for name, text in pages.items()
        if words_on(number) in text and name[4:] in ("feedback", "edited")
    ]
    if len(said) != (act is not Act.APPROVE):
        yield f"LLD-{number}: the person's words stand in {said or 'no page'} after {act}"


def overpaid(server: ModelServer, decided: Mapping[int, Act], deaths: int) -> Iterator[str]:
    """Calls beyond what each decision leads to, and one more for each death."""
    answered = Counter(call["item"] for call in server.answered())
    for number, act in decided.items():
        calls = answered[f"Thing {number} can be used"]
        if not CALLS[act] <= calls <= CALLS[act] + deaths:
            yield f"LLD-{number}: {calls} calls were answered after {act}, with {deaths} deaths"
