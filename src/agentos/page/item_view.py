"""One item as JSON: its documents, the differences between them, its calls, retries and output."""

import difflib
import os
import re
from dataclasses import dataclass

from agentos.core.errors import NothingMatches, UsageError
from agentos.core.protocol.codec import one_line as encode_json
from agentos.core.protocol.codec import pack
from agentos.core.protocol.results import Ending
from agentos.core.run_state.item_history import ItemHistory
from agentos.core.text.line_assembler import clean
from agentos.outputs.report.facts import plain
from agentos.page.markdown import parse_markdown
from agentos.page.run_view import DocumentFiles, RunView
from agentos.page.views import Json, item_json, log_json
from agentos.regular_files import UnsafeFile, open_regular
from agentos.storage.journal import lines_with, read_entry
from agentos.workflows.base import LINEAGE_ACTIVE, LINEAGE_DONE

MAX_DOCUMENT = 2 * 1024 * 1024  # characters shown
MAX_DIFF_LINES = 5000
MAX_OUTPUT = 256 * 1024  # bytes of an item's log per request
RESULT = "result"
_NUMBERED = re.compile(r"([0-9]+)-([a-z]+)\.md")


@dataclass(frozen=True, slots=True)
class ItemDocuments:
    """The documents of one item: the files of its lineage, and what it produced.

    Names from a request are only compared with existing names; they never become a path.
    """

    files: DocumentFiles
    folder: str
    names: tuple[str, ...]
    result: str = ""

    @classmethod
    def of(cls, view: RunView, item: str) -> "ItemDocuments":
        with view.lock:
            started, row = view.record.stats.started, view.record.stats.rows.get(item)
        if started is None or row is None:
            raise NothingMatches(f"{plain(item)} is not in run {view.id}")
        files = view.source.documents(item)
        is_finished = row.outcome is not None and row.outcome.ending is Ending.FINISHED
        folder = _lineage_folder(files, f"{item.rpartition('-')[2]}-{started.workflow}", is_finished)
        names = tuple(name for name in files.names(folder) if _NUMBERED.fullmatch(name)) if folder else ()
        produced = row.outcome.result if row.outcome and row.outcome.result else ""
        return cls(files, folder, names, "" if "://" in produced else produced)

    def listing(self) -> list[Json]:
        """Name, kind and number of each document, and the rounds of the drafts."""
        found: list[Json] = []
        round_number = 0
        for name in self.names:
            match = _NUMBERED.fullmatch(name)
            kind = match[2] if match else ""
            round_number += kind == "draft"
            found.append({"name": name, "kind": kind, "round": round_number})
        if self.result:
            found.append({"name": RESULT, "kind": RESULT, "round": round_number, "path": plain(self.result)})
        return found

    def read(self, name: str) -> str:
        if name == RESULT and self.result:
            path = self.result
        elif name in self.names:
            path = f"{self.folder}/{name}"
        else:
            raise NothingMatches(
                f"no document named {plain(name)}; there are: {', '.join(self.names) or 'none'}"
            )
        try:
            text = self.files.read(path).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            raise NothingMatches(f"cannot read {plain(path)}: {plain(str(error))}") from error
        return "\n".join(clean(line) for line in text[:MAX_DOCUMENT].splitlines())


def _lineage_folder(project: DocumentFiles, name: str, is_finished: bool) -> str:
    """The folder in progress or, for a finished item, the newest finished one: it has the highest suffix.

    A folder in progress beside a finished item belongs to a later run of it.
    """
    active = f"{LINEAGE_ACTIVE}/{name}" if project.names(f"{LINEAGE_ACTIVE}/{name}") else ""
    if active and not is_finished:
        return active
    pattern = re.compile(rf"{re.escape(name)}(?:-([0-9]+))?")
    found = [match for folder in project.names(LINEAGE_DONE) if (match := pattern.fullmatch(folder))]
    newest = max(found, key=lambda match: int(match[1] or 1), default=None)
    return f"{LINEAGE_DONE}/{newest[0]}" if newest else active


def item_view_json(view: RunView, item: str) -> Json:
    documents = ItemDocuments.of(view, item)
    history = _history(view, item)
    with view.lock:
        title = view.record.titles.get(item, "")
        row = item_json(view.record, view.record.stats.rows[item])
    return {
        "run": view.id,
        "title": plain(title),
        "row": row,
        "documents": documents.listing(),
        "calls": [_call_json(record) for record in pack(history.calls)],
        "retries": [{**retry, "reason": plain(retry["reason"])} for retry in pack(history.retries)],
        "log": log_json(view.log_lines(item)),
    }


def _call_json(record: dict[str, object]) -> Json:
    return {**record, "refusal": plain(str(record["refusal"]))}


def _history(view: RunView, item: str) -> ItemHistory:
    """The item's history, from the journal lines that name it; other lines are not decoded."""
    history = ItemHistory(item)
    try:
        for line in lines_with(view.folder, f'"item":{encode_json(item)}'.encode()):
            if entry := read_entry(line):
                history.handle(entry.event, entry.at)
    except (OSError, UnsafeFile):
        pass
    return history


def document_json(view: RunView, item: str, name: str) -> Json:
    text = ItemDocuments.of(view, item).read(name)
    return {"name": name, "source": text, "nodes": parse_markdown(text)}


def diff_json(view: RunView, item: str, first: str, second: str) -> Json:
    """The lines of both documents: unchanged, removed (`-`) and added (`+`)."""
    documents = ItemDocuments.of(view, item)
    before, after = documents.read(first).splitlines(), documents.read(second).splitlines()
    return {"from": first, "to": second, "lines": diff_lines(before, after)}


def diff_lines(before: list[str], after: list[str]) -> list[list[str]]:
    if max(len(before), len(after)) > MAX_DIFF_LINES:
        raise UsageError(
            f"a document has more than {MAX_DIFF_LINES:,} lines: compare the files with git diff"
        )
    matcher = difflib.SequenceMatcher(None, before, after)
    found: list[list[str]] = []
    for operation, first, last, start, end in matcher.get_opcodes():
        if operation == "equal":
            found += [[" ", line] for line in before[first:last]]
        else:
            found += [["-", line] for line in before[first:last]]
            found += [["+", line] for line in after[start:end]]
    return found


def output_json(view: RunView, item: str, offset: int) -> Json:
    """The item's own output after `offset`; a negative offset requests the end of a long log."""
    with view.lock:
        if item not in view.record.stats.rows:
            raise NothingMatches(f"{plain(item)} is not in run {view.id}")
    try:
        with open(open_regular(view.folder / f"{item}.log"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - MAX_OUTPUT) if offset < 0 else min(offset, size)
            file.seek(begin)
            content = file.read(MAX_OUTPUT)
    except (FileNotFoundError, UnsafeFile):
        return {"lines": [], "offset": 0, "skipped": 0}
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    return {
        "lines": [clean(line) for line in lines],
        "offset": begin + len(whole),
        "skipped": begin if offset < 0 else 0,
    }
