"""Detects a full disk."""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

PROBE_SIZE = 256 * 1024  # bytes, about what a node writes
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_IOERR = 10
_SQLITE_FULL = 13


def is_full(error: BaseException, *folders: Path) -> bool:
    """Whether the error means that a disk is full. SQLite reports some of these only as "disk I/O error"."""
    if isinstance(error, OSError):
        return error.errno in _DISK_FULL
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code == _SQLITE_FULL or (code == _SQLITE_IOERR and not all(map(has_space, folders)))
    return False


def has_space(folder: Path) -> bool:
    """Whether a node's output would fit. Tried by writing, because free space does not account for user quotas."""
    while not folder.is_dir():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_SIZE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        if error.errno in _DISK_FULL:
            return False
        raise
    return True
