"""The notes that runs on one host leave for each other, in a file that only grows while they live."""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from agentos.core.protocol.codec import CodecError, decode, encode
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.peer_notes import (
    BucketLimitsLearned,
    BucketUsage,
    CallStarted,
    CooldownStarted,
    KeyRejected,
    Note,
    ProviderFailed,
    RunGone,
)
from agentos.storage.clock import boot_id, host_clock
from agentos.storage.disk_space import is_full
from agentos.storage.files import private_folder
from agentos.storage.locks import LockFile, is_locked
from agentos.storage.peer_log_compaction import NoteCompactor

NAME = "notes.jsonl"
LOCK_TIMEOUT = 0.2
CREDENTIALS = "credentials.toml"
CHUNK = 1 << 20
TRIES = 100
# Made once: it writes two lines for every call.
_one_line = json.JSONEncoder(separators=(",", ":")).encode


class FilePeerLog:
    """One run's place among the others; its lock is held by all its processes, until the last is gone."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = private_folder(folder)
        self._run = run
        boot_id()  # read once, while there are descriptors left to read it with
        self._lock = os.open(
            folder / "turn.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        self._liveness_file = self._open_liveness_file()
        self._file: int | None = None
        self._ours = True
        self._read_to = 0
        self._torn = b""
        self._unwritten: list[str] = []
        with self._locked():
            pass

    @property
    def liveness_fd(self) -> int:
        """The descriptor that every process of this run inherits."""
        descriptor = self._liveness_file.descriptor
        assert descriptor is not None
        return descriptor

    @contextlib.contextmanager
    def lock_and_read(self) -> Iterator[list[Note] | None]:
        """Nobody else decides meanwhile; gives what the others have written since the last turn.

        None if somebody keeps the turn to himself, who may have been stopped in the middle of it.
        """
        with self._locked():
            yield self._read() if self._ours else None

    def append(self, notes: list[Note]) -> bool:
        """Writes to the others, within a turn; false while it is not ours, or a full disk keeps it from them."""
        self._unwritten += [self._line(note, run=self._run) for note in notes]
        if not self._ours:
            return False
        if self._unwritten:
            # What somebody left unfinished, and died, must not swallow our first line.
            lines = (b"\n" if self._torn else b"") + "".join(f"{one}\n" for one in self._unwritten).encode()
            if not self._write(lines):
                return False
            self._unwritten = []
        return True

    def _write(self, lines: bytes) -> bool:
        """All of it or nothing: what was written of lines that did not fit is taken back."""
        file = self._opened()
        prestarted = os.fstat(file).st_size
        rest = lines
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            if not is_full(error):
                raise
            os.ftruncate(file, prestarted)
            return False
        if self._read_to == prestarted and not self._torn:
            # Our own notes are no news.
            self._read_to += len(lines)
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        """Those of the runs of which no process is left."""
        return [RunGone(run) for run in runs if not self._is_alive(run)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._liveness_path(self._run).unlink()
        self._liveness_file.release()
        os.close(self._lock)
        if self._file is not None:
            os.close(self._file)

    def _opened(self) -> int:
        """Within a turn, so that nobody puts a shorter file in its place meanwhile."""
        if self._file is None:
            if not self._others():
                self._compact()
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._folder / NAME, flags, 0o600)
        return self._file

    def _read(self) -> list[Note]:
        """To the end: whoever decides knows all that was written."""
        found: list[Note] = []
        while chunk := os.pread(self._opened(), CHUNK, self._read_to):
            self._read_to += len(chunk)
            *lines, self._torn = (self._torn + chunk).split(b"\n")
            found += [note for note in _notes(lines, self._folder) if note.run != self._run]
        return found

    def _line(self, note: Note, **more: str) -> str:
        stamp = {"format": FORMAT, "boot": boot_id(), "clock": host_clock(), "wall": time.time()}
        return _one_line({**encode(note), **more, **stamp})

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits a moment for its turn, and for one that was missed not again: the stopped hold nobody up."""
        deadline = time.monotonic() + (LOCK_TIMEOUT if self._ours else 0.0)
        while not (taken := self._try_lock()) and time.monotonic() < deadline:
            time.sleep(0.0002)
        self._ours = taken
        try:
            if taken:
                self._opened()
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _open_liveness_file(self) -> LockFile:
        """Somebody may take the file away as a dead run's before it is locked: then it is made again."""
        life = LockFile(self._liveness_path(self._run))
        for _ in range(TRIES):
            if life.acquire() and life.path.exists():
                return life
            life.release()
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock of this run", str(life.path))

    def _others(self) -> bool:
        names = [path.name[len("run-") : -len(".lock")] for path in self._folder.glob("run-*.lock")]
        return any(self._is_alive(name) for name in names if name != self._run)

    def _is_alive(self, run: str) -> bool:
        path = self._liveness_path(run)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return True  # cannot be seen now, and will be looked at again
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Under its lock, and only while it is this file: one that was made anew is somebody's.
            if os.fstat(descriptor).st_nlink:
                path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _compact(self) -> None:
        """Alone here: what is over is dropped; what was learnt, rests or counts on is kept."""
        path = self._folder / NAME
        if not path.exists():
            return
        kept = [self._line(note) for note in _digest(_notes(_lines(self._folder), self._folder)).notes()]
        tmp = path.with_suffix(".tmp")
        with open(tmp, "w", opener=_private) as file:
            file.write("".join(f"{line}\n" for line in kept))
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)

    def _liveness_path(self, run: str) -> Path:
        return _life_path(self._folder, run)


def other_version_warning(folder: Path) -> str | None:
    """One line for people if another version of agentos wrote the notes, which are ignored then."""
    for line in _lines(folder):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if isinstance(record, dict) and "boot" in record and record.get("format") != FORMAT:
            return (
                f"ignoring {folder / NAME}: another version of agentos wrote it. "
                "Limits and cooldowns of the keys are learned again"
            )
        return None
    return None


def read_notes(folder: Path) -> list[Note]:
    """All that is written, for those who only look."""
    return list(_notes(_lines(folder), folder))


def _notes(lines: Iterable[bytes], folder: Path) -> Iterator[Note]:
    """Without what was said of keys before their file was changed: they have another chance."""
    for line in lines:
        note = read_note(line)
        if isinstance(note, KeyRejected) and note.at < _changed_at(folder.parent / CREDENTIALS):
            continue
        if note is not None:
            yield note


def _changed_at(path: Path) -> float:
    """When a file was changed or put there, by the host's clock."""
    try:
        return path.stat().st_ctime - time.time() + host_clock()
    except FileNotFoundError:
        return float("-inf")


def read_findings(folder: Path) -> list[Note]:
    """What is known of keys, buckets and providers: limits, rests, what was used of a day."""
    return _digest(read_notes(folder)).known()


def _digest(notes: Iterable[Note]) -> NoteCompactor:
    found = NoteCompactor(host_clock(), time.time() - host_clock())
    for note in notes:
        found.add(note)
    return found


def _lines(folder: Path) -> Iterator[bytes]:
    """One at a time: the file of a long day may be large."""
    with contextlib.suppress(FileNotFoundError), open(folder / NAME, "rb") as file:
        yield from file


def dead_runs(folder: Path, runs: set[str]) -> list[RunGone]:
    """Those of the runs of which no process is left, for those who only look."""
    return [RunGone(run) for run in runs if not is_locked(_life_path(folder, run))]


def read_note(line: bytes) -> Note | None:
    """A note with its times by this boot's clock; None for what cannot be read."""
    try:
        record = json.loads(line)
        if record["format"] != FORMAT:
            return None
        note: Note = decode(record)
        if record["boot"] == boot_id():
            return note
        return _shifted(note, host_clock() - (time.time() - record["wall"]) - record["clock"])
    except (CodecError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _shifted(note: Note, seconds: float) -> Note:
    match note:
        case CallStarted():
            return replace(note, at=note.at + seconds)
        case CooldownStarted():
            # A rest that is for no day says so with a zero.
            exhausted_until = note.exhausted_until + seconds if note.exhausted_until else 0.0
            return replace(
                note, until=note.until + seconds, exhausted_until=exhausted_until, at=note.at + seconds
            )
        case BucketLimitsLearned():
            return replace(note, window_start=note.window_start + seconds)
        case BucketUsage():
            hours = tuple(replace(hour, at=hour.at + seconds) for hour in note.hours)
            return replace(note, hours=hours, at=note.at + seconds)
        case KeyRejected():
            return replace(note, at=note.at + seconds)
        case ProviderFailed():
            open_until = note.open_until + seconds if note.open_until else 0.0
            return replace(note, open_until=open_until, at=note.at + seconds)
        case _:
            return note


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _life_path(folder: Path, run: str) -> Path:
    return folder / f"run-{run}.lock"


class NoPeers:
    @contextlib.contextmanager
    def lock_and_read(self) -> Iterator[list[Note]]:
        yield []

    def append(self, notes: list[Note]) -> bool:
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        return []
