"""Finds the documents that are nearest in words to a text: earlier designs, other issues."""

import contextlib
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.words import split_identifiers, words
from agentos.regular_files import UnsafeFile, list_folder, read_regular

MAX_DOCUMENTS = 2000  # newest by name; each is read for every question
_MAX_TERMS = 40
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)\n.*?\n\1\n", re.DOTALL)
_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RelatedDocument:
    """A document near a text. `similarity` is the share of the text's telling words in it, 0 to 1."""

    path: str
    title: str
    body: str
    similarity: float = 0.0


def read_documents(project: Path, folder: str) -> list[RelatedDocument]:
    """The Markdown files directly in a folder of the project, without front matter; no link is followed."""
    try:
        names = sorted(name for name in list_folder(project / folder, project) if name.endswith(".md"))
    except (OSError, UnsafeFile):
        return []
    found = []
    for name in names[-MAX_DOCUMENTS:]:
        with contextlib.suppress(OSError, UnsafeFile, UnicodeDecodeError):
            text = read_regular(project / folder / name, project).decode()
            body = _FRONT_MATTER.sub("", text, count=1)
            title = _TITLE.search(body)
            found.append(RelatedDocument(f"{folder}/{name}", title[1].strip() if title else name, body))
    return found


def nearest(documents: Iterable[RelatedDocument], text: str, count: int) -> list[RelatedDocument]:
    """The documents that match the text best, best first; those without a telling word in common are left out."""
    pool = list(documents)
    terms = list(dict.fromkeys(words(text)))[: 4 * _MAX_TERMS]
    if not pool or not terms:
        return []
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute('CREATE VIRTUAL TABLE t USING fts5(title, body, tokenize="porter unicode61")')
        connection.executemany(
            "INSERT INTO t (rowid, title, body) VALUES (?, ?, ?)",
            (
                (number, split_identifiers(d.title), split_identifiers(d.body))
                for number, d in enumerate(pool, 1)
            ),
        )
        telling = _telling(connection, terms, len(pool))
        if not telling:
            return []
        rows = connection.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t, 4.0, 1.0) LIMIT ?",
            (" OR ".join(f'"{term}"' for term in telling), count),
        ).fetchall()
        return [
            RelatedDocument(d.path, d.title, d.body, _similarity(connection, number, telling))
            for (number,) in rows
            for d in [pool[number - 1]]
        ]


def _telling(connection: sqlite3.Connection, terms: list[str], total: int) -> list[str]:
    """The words found in at most half of the documents, or in at most two; empty if no document has any of them."""
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
