"""Whether a disk has room."""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

ENOUGH = 256 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_IOERR = 10
_SQLITE_FULL = 13


def is_full(error: BaseException, *places: Path) -> bool:
    """Whether this error says that a disk is full; SQLite calls some of them "disk I/O error"."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return code == _SQLITE_FULL or (code == _SQLITE_IOERR and not all(map(has_space, places)))
    return False


def has_space(place: Path) -> bool:
    """Whether as much as a node writes can be written there; tried, because quotas are not told."""
    while not place.is_dir():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(bytes(ENOUGH))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        if error.errno in _FULL:
            return False
        raise
    return True
