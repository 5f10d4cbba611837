"""The peer log: an append-only file through which the runs on one host share their API keys.

Several runs may use the same keys at once, without a process that coordinates them. Each keeps its own pool in memory and
tells the others what it does with the keys:

- **Notes.** `notes.jsonl` is append-only, one note per line: a call started or ended, a cooldown, a learned limit.
  Every run reads the notes of the others and applies them to its own pool, so all pools agree.
- **Shared lock.** A run hands out keys only while it holds `pool.lock`: it takes the lock, reads the new notes,
  decides, appends its own notes, and releases. Two runs can therefore never grant the same slot of a key.
- **Liveness.** Each run holds an flock on its own `run-*.lock`, through a descriptor that all its processes inherit.
  The kernel releases it when the last of them is gone, however it ended. Then the others free what the run held.
- **Compaction.** A run that starts while no other is alive replaces the file with what is still worth knowing.

Times in notes are seconds of the host's boot clock, which all processes share. `read_note` converts the times of notes
that were written before a reboot.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentos.core.protocol.codec import CodecError, decode, encode
from agentos.core.protocol.events import FORMAT
from agentos.core.protocol.peer_notes import KeyRejected, Note, RunGone, shift_times
from agentos.platform_support import boot_id, host_clock
from agentos.regular_files import open_regular
from agentos.storage.files import is_full, private_folder
from agentos.storage.locks import LockFile, try_flock
from agentos.storage.peer_log_compaction import NoteCompactor

NOTES_FILE = "notes.jsonl"
SHARED_LOCK_FILE = "pool.lock"
CREDENTIALS_FILE = "credentials.toml"
LOCK_TIMEOUT = 0.2  # seconds
LOCK_RETRY_INTERVAL = 0.0002  # seconds
READ_SIZE = 1 << 20  # bytes
_LIVENESS_ATTEMPTS = 100
_TO_JSON = json.JSONEncoder(separators=(",", ":")).encode  # built once: it writes two lines for every call


class FilePeerLog:
    """One run's access to the peer log.

    Use it in this order for each decision about keys:

        with log.lock_and_read() as notes:  # None: the lock was not available, grant no keys
            ...                             # apply the notes, decide
            log.append(own_notes)

    The run counts as alive until every process that inherited `liveness_fd` has ended.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = private_folder(folder)
        self._run = run
        boot_id()  # cached now, because reading it later may fail for lack of file descriptors
        self._shared_lock = open_regular(folder / SHARED_LOCK_FILE, flags=os.O_RDWR | os.O_CREAT)
        self._liveness_lock = self._acquire_liveness_lock()
        self._file: int | None = None
        self._has_lock = True
        self._offset = 0
        self._partial_line = b""
        self._unwritten: list[str] = []
        with self._locked():
            pass

    @property
    def liveness_fd(self) -> int:
        """The descriptor that every process of this run must inherit."""
        descriptor = self._liveness_lock.descriptor
        assert descriptor is not None
        return descriptor

    @contextlib.contextmanager
    def lock_and_read(self) -> Iterator[list[Note] | None]:
        """Hold the shared lock for the block and yield the other runs' notes since the last time.

        Yields None if the lock was not available within LOCK_TIMEOUT: its holder may have been suspended (Ctrl-Z).
        """
        with self._locked():
            yield self._read_new() if self._has_lock else None

    def append(self, notes: list[Note]) -> bool:
        """Write notes for the other runs; must be called inside `lock_and_read`.

        Returns False if they could not be written, because the lock was not available or the disk is full. They are
        kept and written first by the next call.
        """
        self._unwritten += [self._line(note, run=self._run) for note in notes]
        if not self._has_lock:
            return False
        if self._unwritten:
            # If a run died while writing a line, a newline keeps our first note from becoming part of it.
            separator = b"\n" if self._partial_line else b""
            if not self._write(separator + "".join(f"{line}\n" for line in self._unwritten).encode()):
                return False
            self._unwritten = []
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        """A RunGone note for each of these runs that has no process left."""
        return [RunGone(run) for run in runs if not self._is_alive(run)]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            liveness_path(self._folder, self._run).unlink()
        self._liveness_lock.release()
        os.close(self._shared_lock)
        if self._file is not None:
            os.close(self._file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait up to LOCK_TIMEOUT, but not at all if the last attempt failed: a suspended run must not delay us."""
        deadline = time.monotonic() + (LOCK_TIMEOUT if self._has_lock else 0.0)
        while not (locked := self._try_lock()) and time.monotonic() < deadline:
            time.sleep(LOCK_RETRY_INTERVAL)
        self._has_lock = locked
        try:
            if locked:
                self._open_notes()
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self._shared_lock, fcntl.LOCK_UN)

    def _try_lock(self) -> bool:
        try:
            try_flock(self._shared_lock, fcntl.LOCK_EX)
        except BlockingIOError:
            return False
        return True

    def _open_notes(self) -> int:
        """Open the notes file once. Needs the shared lock, so that no other run replaces the file at the same time."""
        if self._file is None:
            names = [path.name[len("run-") : -len(".lock")] for path in self._folder.glob("run-*.lock")]
            if not any(self._is_alive(name) for name in names if name != self._run):
                self._compact()
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._file = open_regular(self._folder / NOTES_FILE, flags=flags)
        return self._file

    def _read_new(self) -> list[Note]:
        """Always reads to the end: a decision must not miss a note."""
        found: list[Note] = []
        while chunk := os.pread(self._open_notes(), READ_SIZE, self._offset):
            self._offset += len(chunk)
            *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
            found += [note for note in _parse(lines, self._folder) if note.run != self._run]
        return found

    def _write(self, lines: bytes) -> bool:
        """Write all or nothing: if the disk is full, the part that was written is truncated again."""
        file = self._open_notes()
        size_before = os.fstat(file).st_size
        rest = lines
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as error:
            if not is_full(error):
                raise
            os.ftruncate(file, size_before)
            return False
        if self._offset == size_before and not self._partial_line:
            self._offset += len(lines)  # skip our own notes when reading
        return True

    def _compact(self) -> None:
        """Replace the file with a shorter one of the same effect. Call it only while no other run is alive."""
        path = self._folder / NOTES_FILE
        if not path.exists():
            return
        kept = [self._line(note) for note in _compacted(self._folder).notes()]
        tmp = path.with_suffix(".tmp")
        with open(open_regular(tmp, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write("".join(f"{line}\n" for line in kept))
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)

    def _line(self, note: Note, **extra: str) -> str:
        stamp = {"format": FORMAT, "boot": boot_id(), "clock": host_clock(), "wall": time.time()}
        return _TO_JSON({**encode(note), **extra, **stamp})

    def _acquire_liveness_lock(self) -> LockFile:
        """Acquire it with retries, because another run may mistake the file for that of a dead run and delete it first."""
        lock = LockFile(liveness_path(self._folder, self._run))
        for _ in range(_LIVENESS_ATTEMPTS):
            if lock.acquire() and lock.path.exists():
                return lock
            lock.release()
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock of this run", str(lock.path))

    def _is_alive(self, run: str) -> bool:
        """Whether any process of the run is left. Removes the lock file of a dead run."""
        path = liveness_path(self._folder, run)
        try:
            descriptor = open_regular(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return True  # no descriptor left to find out; try again next time
        try:
            try_flock(descriptor, fcntl.LOCK_EX)
            # Only if the name still refers to the file we locked: a new file belongs to a living run.
            if os.fstat(descriptor).st_nlink:
                path.unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class NoPeers:
    """A peer log for a process that shares its keys with no other run."""

    @contextlib.contextmanager
    def lock_and_read(self) -> Iterator[list[Note]]:
        yield []

    def append(self, notes: list[Note]) -> bool:
        return True

    def gone(self, runs: set[str]) -> list[RunGone]:
        return []


def read_notes(folder: Path) -> list[Note]:
    """Every valid note, oldest first. Takes no lock, so anyone may call it at any time."""
    return list(_stored_notes(folder))


def read_findings(folder: Path) -> list[Note]:
    """What is known about keys, buckets and providers: limits, cooldowns, usage of the day."""
    return _compacted(folder).known()


def _compacted(folder: Path) -> NoteCompactor:
    compactor = NoteCompactor(host_clock(), time.time() - host_clock())
    for note in _stored_notes(folder):
        compactor.add(note)
    return compactor


def read_note(line: bytes) -> Note | None:
    """A note with its times converted to the current boot's clock; None if the line is not a note."""
    try:
        record = json.loads(line)
        if record["format"] != FORMAT:
            return None
        note: Note = decode(record)
        if record["boot"] == boot_id():
            return note
        return shift_times(note, host_clock() - (time.time() - record["wall"]) - record["clock"])
    except (CodecError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def liveness_path(folder: Path, run: str) -> Path:
    return folder / f"run-{run}.lock"


def _stored_notes(folder: Path) -> Iterator[Note]:
    """Yield the notes one at a time, because the file may be large."""
    with (
        contextlib.suppress(FileNotFoundError),
        open(open_regular(folder / NOTES_FILE), "rb") as file,
    ):
        yield from _parse(file, folder)


def _parse(lines: Iterable[bytes], folder: Path) -> Iterator[Note]:
    """Parse notes, but drop rejections older than the credentials file: keys get another chance when it changes."""
    for line in lines:
        note = read_note(line)
        if isinstance(note, KeyRejected) and note.at < _changed_at(folder.parent / CREDENTIALS_FILE):
            continue
        if note is not None:
            yield note


def _changed_at(path: Path) -> float:
    """When a file was last changed or replaced, by the host clock."""
    try:
        return path.stat().st_ctime - time.time() + host_clock()
    except FileNotFoundError:
        return float("-inf")
