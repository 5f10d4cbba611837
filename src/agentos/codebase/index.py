"""The index of a project's code: one SQLite file, with full-text search over contents and paths.

Each content is stored once, identified by its git hash (`blob`), and snapshots refer to it, so that for a new commit only
the contents that it changed are added. One process writes at a time; any number may read at the same time.
"""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.signatures import Definition
from agentos.codebase.source_files import Snapshot, SourceFile
from agentos.codebase.words import split_identifiers
from agentos.core.errors import PreflightError
from agentos.regular_files import open_regular

VERSION = 2
"""Increase it with every change to the tables or to what is stored in them; indexes of other versions are then rebuilt."""
KEPT_SNAPSHOTS = 4  # runs that started at older commits may still be reading
_BUSY_TIMEOUT = 30.0  # seconds
_CACHE = -16_000  # negative: SQLite then reads it as KiB instead of pages
# `text` is the full-text index of all contents, whose `rowid` is that of `blobs`; it can search but not return them. `texts`
# are the contents that are shown whole. `names` are the names that contents define, without their enclosing definitions.
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash TEXT NOT NULL, language TEXT NOT NULL, skipped TEXT NOT NULL,
                    definitions TEXT NOT NULL);
CREATE UNIQUE INDEX blobs_by_hash ON blobs (hash, language);
CREATE TABLE texts (hash TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names (name TEXT NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY (name, blob)) WITHOUT ROWID;
CREATE TABLE paths (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, stem TEXT NOT NULL);
CREATE INDEX paths_by_stem ON paths (stem);
CREATE TABLE snapshots (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, "commit" TEXT NOT NULL,
                        created REAL NOT NULL);
CREATE TABLE files (snapshot INTEGER NOT NULL, path INTEGER NOT NULL, blob INTEGER NOT NULL,
                    PRIMARY KEY (snapshot, path)) WITHOUT ROWID;
CREATE INDEX files_by_blob ON files (snapshot, blob);
CREATE VIRTUAL TABLE text USING fts5(symbols, body, content='', tokenize="porter unicode61", detail=full);
CREATE VIRTUAL TABLE path_text USING fts5(words, content='', tokenize="porter unicode61");
"""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of a snapshot. `blob` is the git hash of its content; `skipped` says why that is not in the index, and is
    empty if it is."""

    path: str
    blob: str
    language: str
    skipped: str
    definitions: tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What is stored of one content. `symbols` are the names it defines, as words, which count more in a search than the
    words of the `body`."""

    language: str
    skipped: str = ""
    definitions: Sequence[Definition] = ()
    symbols: str = ""
    body: str = ""


class IndexWriter:
    """Adds contents and snapshots. Use it under the index's lock."""

    def __init__(self, path: Path) -> None:
        self._connection = _open_for_writing(path)

    def close(self) -> None:
        self._connection.close()

    def renew_snapshot(self, name: str) -> bool:
        """Keep the snapshot as long as a new one; False if it is not stored."""
        found = self._connection.execute("SELECT 1 FROM snapshots WHERE name = ?", (name,)).fetchone()
        if found:
            with self._connection:
                self._connection.execute(
                    "UPDATE snapshots SET created = ? WHERE name = ?", (time.time(), name)
                )
        return found is not None

    def missing(self, files: Sequence[tuple[SourceFile, str]]) -> list[tuple[SourceFile, str]]:
        """One file, with its language, for each pair of content and language that is not stored yet."""
        known = set(self._connection.execute("SELECT hash, language FROM blobs"))
        wanted: dict[tuple[str, str], tuple[SourceFile, str]] = {}
        for file, language in files:
            if (file.blob, language) not in known:
                wanted.setdefault((file.blob, language), (file, language))
        return list(wanted.values())

    def add(self, entries: Sequence[tuple[str, IndexEntry]]) -> None:
        """Store contents, each with its hash, in one transaction."""
        with self._connection as connection:
            for blob, entry in entries:
                stored = [(d.name, d.depth, d.signature) for d in entry.definitions]
                row = connection.execute(
                    "INSERT INTO blobs (hash, language, skipped, definitions) VALUES (?, ?, ?, ?)",
                    (
                        blob,
                        entry.language,
                        entry.skipped,
                        json.dumps(stored, ensure_ascii=False) if stored else "",
                    ),
                ).lastrowid
                if entry.body:
                    connection.execute(
                        "INSERT INTO text (rowid, symbols, body) VALUES (?, ?, ?)",
                        (row, entry.symbols, entry.body),
                    )
                names = {d.name.rpartition(".")[2] for d in entry.definitions}
                connection.executemany("INSERT INTO names VALUES (?, ?)", [(name, row) for name in names])

    def has_text(self, blob: str) -> bool:
        return self._connection.execute("SELECT 1 FROM texts WHERE hash = ?", (blob,)).fetchone() is not None

    def add_text(self, blob: str, text: str) -> None:
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO texts VALUES (?, ?)", (blob, text))

    def add_snapshot(self, snapshot: Snapshot, languages: Sequence[str]) -> None:
        """Add a snapshot whose contents are all stored, and delete all but the newest snapshots."""
        with self._connection as connection:
            known = {row[0] for row in connection.execute("SELECT path FROM paths")}
            for path in dict.fromkeys(file.path for file in snapshot.files if file.path not in known):
                row = connection.execute(
                    "INSERT INTO paths (path, stem) VALUES (?, ?)", (path, stem_of(path))
                ).lastrowid
                connection.execute(
                    "INSERT INTO path_text (rowid, words) VALUES (?, ?)", (row, split_identifiers(path))
                )
            number = connection.execute(
                'INSERT INTO snapshots (name, "commit", created) VALUES (?, ?, ?)',
                (snapshot.name, snapshot.commit, time.time()),
            ).lastrowid
            connection.executemany(
                "INSERT INTO files SELECT ?, (SELECT id FROM paths WHERE path = ?),"
                " (SELECT id FROM blobs WHERE hash = ? AND language = ?)",
                (
                    (number, file.path, file.blob, language)
                    for file, language in zip(snapshot.files, languages, strict=True)
                ),
            )
            old = "SELECT id FROM snapshots ORDER BY created DESC, id DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM files WHERE snapshot IN ({old})", (KEPT_SNAPSHOTS,))  # noqa: S608
            connection.execute(f"DELETE FROM snapshots WHERE id IN ({old})", (KEPT_SNAPSHOTS,))  # noqa: S608

    def is_mostly_stale(self) -> bool:
        """Whether most contents no longer belong to a snapshot. As full-text rows cannot be deleted individually, the whole
        index is then rebuilt."""
        (total,) = self._connection.execute("SELECT count(*) FROM blobs").fetchone()
        (used,) = self._connection.execute("SELECT count(DISTINCT blob) FROM files").fetchone()
        return bool(total > 2000 and total > 3 * used)


class CodeIndex:
    """Reads one snapshot of an index. Use it as a context manager."""

    def __init__(self, path: Path, snapshot: str) -> None:
        """Raises PreflightError if the index cannot be read or does not have the snapshot."""
        try:
            self.connection = sqlite3.connect(
                f"file:{_quoted(path)}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT
            )
            self.connection.execute(f"PRAGMA cache_size = {_CACHE}")
            found = self.connection.execute(
                'SELECT id, "commit" FROM snapshots WHERE name = ?', (snapshot,)
            ).fetchone()
        except sqlite3.Error as error:
            raise PreflightError(f"the code index {path} cannot be read: {error}") from error
        if found is None:
            self.connection.close()
            raise PreflightError(f"the code index {path} has no snapshot {snapshot}")
        self.name = snapshot
        self.snapshot: int = found[0]
        self.commit: str = found[1]

    def __enter__(self) -> "CodeIndex":
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def paths(self) -> list[str]:
        """All paths, in order."""
        rows = self.connection.execute(
            "SELECT p.path FROM files f JOIN paths p ON p.id = f.path WHERE f.snapshot = ? ORDER BY p.path",
            (self.snapshot,),
        )
        return [row[0] for row in rows]

    def file(self, path: str) -> IndexedFile | None:
        found = self.connection.execute(
            "SELECT b.hash, b.language, b.skipped, b.definitions FROM paths p"
            " JOIN files f ON f.path = p.id AND f.snapshot = ? JOIN blobs b ON b.id = f.blob WHERE p.path = ?",
            (self.snapshot, path),
        ).fetchone()
        if found is None:
            return None
        blob, language, skipped, stored = found
        definitions = tuple(Definition(*row) for row in json.loads(stored)) if stored else ()
        return IndexedFile(path, blob, language, skipped, definitions)

    def text(self, blob: str) -> str | None:
        """The whole text of a file; None if it was not requested when the index was built, or if it is skipped."""
        found = self.connection.execute("SELECT text FROM texts WHERE hash = ?", (blob,)).fetchone()
        return found[0] if found else None

    def defining(self, name: str, limit: int = 20) -> list[str]:
        """The paths of files that define this name, in any scope."""
        rows = self.connection.execute(
            "SELECT p.path FROM names n CROSS JOIN files f ON f.blob = n.blob AND f.snapshot = ?"
            " JOIN paths p ON p.id = f.path WHERE n.name = ? ORDER BY p.path LIMIT ?",
            (self.snapshot, name, limit),
        )
        return [row[0] for row in rows]

    def with_stem(self, stem: str, limit: int = 200) -> list[tuple[int, str]]:
        """The path ids and paths of files whose stem is `stem`; see `stem_of`."""
        rows = self.connection.execute(
            "SELECT p.id, p.path FROM paths p CROSS JOIN files f ON f.path = p.id AND f.snapshot = ?"
            " WHERE p.stem = ? ORDER BY p.path LIMIT ?",
            (self.snapshot, stem, limit),
        )
        return rows.fetchall()

    def skipped(self) -> dict[str, int]:
        """The number of skipped files by reason."""
        rows = self.connection.execute(
            "SELECT b.skipped, count(*) FROM files f JOIN blobs b ON b.id = f.blob"
            " WHERE f.snapshot = ? AND b.skipped != '' GROUP BY 1 ORDER BY 2 DESC",
            (self.snapshot,),
        )
        return dict(rows.fetchall())


def stem_of(path: str) -> str:
    """The name of a file without its suffixes, in lower case. Files and modules that an issue mentions are found by it."""
    return path.rpartition("/")[2].partition(".")[0].casefold()


def _open_for_writing(path: Path) -> sqlite3.Connection:
    """The database: created if it is missing, and replaced if it is damaged or has another version."""
    for attempt in (1, 2):
        connection = _connect(path)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # This is a cache: after a power failure, it is rebuilt.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA cache_size = {_CACHE}")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                with connection:
                    connection.executescript(_SCHEMA)
                    connection.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))
            version = connection.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
            if version == (str(VERSION),):
                return connection
        except sqlite3.DatabaseError:
            if attempt == 2:
                connection.close()
                raise
        connection.close()
        delete_index(path)
    raise PreflightError(f"the code index {path} cannot be created")


def delete_index(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _connect(path: Path) -> sqlite3.Connection:
    # SQLite itself would let other users read it, depending on the umask.
    os.close(open_regular(path, flags=os.O_RDWR | os.O_CREAT))
    return sqlite3.connect(path, timeout=_BUSY_TIMEOUT)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))
