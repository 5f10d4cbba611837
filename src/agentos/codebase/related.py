"""Finds the documents most similar to a text by their words: earlier designs, other issues."""

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.words import split_identifiers, words
from agentos.core.errors import ItemError
from agentos.core.text.line_assembler import one_line
from agentos.regular_files import UnsafeFile, list_folder, open_regular, read_regular

MAX_DOCUMENTS = 2000  # those with the highest numbers; each is read for every query
_MAX_TERMS = 40
_MAX_BODY = 65_536  # characters that are compared; GitHub's own limit
_CHECK_EVERY = 200  # documents
_LEFTOVER_AGE = 3600  # seconds
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)\n.*?\n\1\n", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}")
_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)
_SCHEMA = """
CREATE TABLE documents (id INTEGER PRIMARY KEY, path TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL);
CREATE VIRTUAL TABLE t USING fts5(title, body, content='', tokenize="porter unicode61");
"""


@dataclass(frozen=True, slots=True)
class RelatedDocument:
    """A document similar to a text. `similarity` is the share of the text's distinctive words that it contains, 0 to 1."""

    path: str
    title: str
    body: str
    similarity: float = 0.0


def document_names(project: Path, folder: str) -> list[str]:
    """The names of the Markdown files directly in a folder of the project, in the order of their numbers."""
    try:
        names = (name for name in list_folder(project / folder, project) if name.endswith(".md"))
        return sorted(names, key=lambda name: (int((_NUMBER.search(name) or "0")[0]), name))
    except (OSError, UnsafeFile):
        return []


def read_documents(project: Path, folder: str) -> list[RelatedDocument]:
    """These files, at most `MAX_DOCUMENTS` of them, without front matter; no link is followed."""
    found = []
    for name in document_names(project, folder)[-MAX_DOCUMENTS:]:
        with contextlib.suppress(OSError, UnsafeFile, UnicodeDecodeError):
            text = read_regular(project / folder / name, project).decode()
            body = _FRONT_MATTER.sub("", text, count=1)
            title = _TITLE.search(body)
            path = one_line(f"{folder}/{name}")  # a name that is not UTF-8 can be neither stored nor sent
            found.append(RelatedDocument(path, one_line(title[1].strip() if title else name), body))
    return found


def nearest(documents: Iterable[RelatedDocument], text: str, count: int) -> list[RelatedDocument]:
    """The documents that match the text best, best first; those without a distinctive word in common are left out."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        _store(connection, documents)
        return _search(connection, text, count)


def write_document_index(
    path: Path, documents: Iterable[RelatedDocument], check: Callable[[], None] = lambda: None
) -> None:
    """Store the documents for `nearest_in`, in place of those stored before. `check` may raise to stop."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    for leftover in path.parent.glob(f"{path.name}.*"):  # of runs that were killed
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE:
                leftover.unlink()
    try:
        # Created by us, so that it is private from the start.
        os.close(open_regular(new, flags=os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        with contextlib.closing(sqlite3.connect(new)) as connection:
            # A cache that every run rewrites and that never changes afterwards.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            _store(connection, _checked(documents, check))
            connection.commit()
        os.replace(new, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def nearest_in(path: Path, text: str, count: int) -> list[RelatedDocument]:
    """As `nearest`, among the documents of an index. Raises ItemError if it cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return _search(connection, text, count)
    except sqlite3.Error as error:
        fix = "run the same command again: every run rewrites it"
        raise ItemError(f"the issues to compare with cannot be read from {path}: {error}", (fix,)) from error


def _checked(documents: Iterable[RelatedDocument], check: Callable[[], None]) -> Iterator[RelatedDocument]:
    for number, document in enumerate(documents):
        if number % _CHECK_EVERY == 0:
            check()
        yield document


def _store(connection: sqlite3.Connection, documents: Iterable[RelatedDocument]) -> None:
    connection.executescript(_SCHEMA)
    for number, document in enumerate(documents, 1):
        body = document.body[:_MAX_BODY]
        connection.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?)", (number, document.path, document.title, body)
        )
        connection.execute(
            "INSERT INTO t (rowid, title, body) VALUES (?, ?, ?)",
            (number, split_identifiers(document.title), split_identifiers(body)),
        )


def _search(connection: sqlite3.Connection, text: str, count: int) -> list[RelatedDocument]:
    terms = list(dict.fromkeys(words(text)))[: 4 * _MAX_TERMS]
    distinctive = _distinctive(connection, terms)
    if not distinctive:
        return []
    rows = connection.execute(
        "SELECT d.id, d.path, d.title, d.body FROM t JOIN documents d ON d.id = t.rowid"
        " WHERE t MATCH ? ORDER BY bm25(t, 4.0, 1.0) LIMIT ?",
        (" OR ".join(f'"{term}"' for term in distinctive), count),
    ).fetchall()
    return [
        RelatedDocument(path, title, body, _similarity(connection, number, distinctive))
        for number, path, title, body in rows
    ]


def _distinctive(connection: sqlite3.Connection, terms: list[str]) -> list[str]:
    """The words found in at most half of the documents, or in at most two; empty if no document has any of them."""
    (total,) = connection.execute("SELECT count(*) FROM documents").fetchone()
    counts = {
        term: connection.execute("SELECT count(*) FROM t WHERE t MATCH ?", (f'"{term}"',)).fetchone()[0]
        for term in terms
    }
    rare = [term for term in terms if counts[term] <= max(2, total // 2)]
    return rare[:_MAX_TERMS] if any(counts[term] for term in rare) else []


def _similarity(connection: sqlite3.Connection, number: int, terms: list[str]) -> float:
    hits: int = sum(
        connection.execute(
            "SELECT count(*) FROM t WHERE t MATCH ? AND rowid = ?", (f'"{term}"', number)
        ).fetchone()[0]
        for term in terms
    )
    return hits / len(terms)
