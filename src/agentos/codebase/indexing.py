"""Updates the index of a project: reads new contents, one batch at a time."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentos.codebase.index import IndexEntry, IndexWriter, delete_index
from agentos.codebase.signatures import definitions, is_supported, language_of
from agentos.codebase.skip_rules import FileSkip, skip_by_content, skip_by_name
from agentos.codebase.source_files import BlobReader, ProjectSource, Snapshot, SourceFile
from agentos.codebase.words import split_identifiers
from agentos.regular_files import UnsafeFile, open_regular

BATCH = 200  # files per transaction, whose texts are in memory at the same time
Progress = Callable[[int, int], None]
"""Called with the number of files done and their total; may raise to stop."""


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """What an update did: files of the snapshot, and how many contents were new."""

    files: int
    indexed: int


@dataclass(frozen=True, slots=True)
class IndexJob:
    """What to index and where. `whole` are the paths of files to show whole, whose texts are stored, too."""

    database: Path
    source: ProjectSource
    snapshot: Snapshot
    whole: tuple[str, ...] = ()


def update_index(
    job: IndexJob, progress: Progress, may_parse: Callable[[str], bool] = lambda blob: True
) -> IndexUpdate:
    """Index every content of the snapshot that is not in the index yet. Call it under `index_lock`.

    `may_parse` is called before each file is parsed; if it returns False, the file gets no definitions. If `progress`
    raises, the batches already written stay in the index, and the next update continues from there.
    """
    with contextlib.closing(IndexWriter(job.database)) as writer:
        is_known = writer.renew_snapshot(job.snapshot.name)
        is_stale = not is_known and writer.is_mostly_stale()
    if is_stale:
        delete_index(job.database)
    with contextlib.closing(IndexWriter(job.database)) as writer:
        indexed = 0 if is_known else _index_missing(writer, job, progress, may_parse)
        _keep_whole(writer, job)
    return IndexUpdate(len(job.snapshot.files), indexed)


def _index_missing(
    writer: IndexWriter, job: IndexJob, progress: Progress, may_parse: Callable[[str], bool]
) -> int:
    files = job.snapshot.files
    # A language whose parser is missing is recorded as "", so its files are indexed again once the parser is installed.
    known = [language_of(file.path) for file in files]
    languages = [language if is_supported(language) else "" for language in known]
    missing = writer.missing(list(zip(files, languages, strict=True)))
    if missing:
        progress(0, len(missing))
        with contextlib.closing(job.source.open_reader(job.snapshot)) as reader:
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                writer.add(
                    [(file.blob, _entry(reader, file, language, may_parse)) for file, language in batch]
                )
                progress(start + len(batch), len(missing))
    writer.add_snapshot(job.snapshot, languages)
    return len(missing)


def _keep_whole(writer: IndexWriter, job: IndexJob) -> None:
    named = (file for file in job.snapshot.files if file.path in job.whole)
    wanted = [file for file in named if not writer.has_text(file.blob)]
    if not wanted:
        return
    with contextlib.closing(job.source.open_reader(job.snapshot)) as reader:
        for file in wanted:
            if skip_by_name(file.path, file.size):
                continue
            with contextlib.suppress(OSError, UnsafeFile):
                content = reader.read(file)
                if skip_by_content(content) is None:
                    writer.add_text(file.blob, content.decode("utf-8", "replace"))


def _entry(
    reader: BlobReader, file: SourceFile, language: str, may_parse: Callable[[str], bool]
) -> IndexEntry:
    if reason := skip_by_name(file.path, file.size):
        return IndexEntry(language, reason)
    try:
        content = reader.read(file)
    except (OSError, UnsafeFile):
        return IndexEntry(language, FileSkip.UNREADABLE)
    if reason := skip_by_content(content):
        return IndexEntry(language, reason)
    found = definitions(content, language) if language and may_parse(file.blob) else []
    names = " ".join(definition.name.rpartition(".")[2] for definition in found)
    body = split_identifiers(content.decode("utf-8", "replace"))
    return IndexEntry(language, "", found, split_identifiers(names), body)


@contextlib.contextmanager
def index_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the index's write lock; with `wait=False`, yield False if another process holds it."""
    descriptor = open_regular(Path(f"{path}.lock"), flags=os.O_RDWR | os.O_CREAT)
    try:
        yield _lock(descriptor, wait)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
