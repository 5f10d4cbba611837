"""Caches the code indexes of submissions on a worker's disk."""

import zlib
from pathlib import Path

from agentos.core.errors import PreflightError
from agentos.core.planning.submission import SharedTask
from agentos.core.planning.worker_task import CodeAccess
from agentos.storage.files import private_folder
from agentos.storage.postgres.fleet_items import FleetDatabase


class CodeCache:
    """The code indexes of submissions, one file each."""

    def __init__(self, folder: Path, database: FleetDatabase) -> None:
        self._folder = private_folder(folder)
        self._database = database

    def access(self, shared: SharedTask) -> CodeAccess | None:
        if (code := shared.code) is None:
            return None
        path = self._folder / f"{code.digest}.db"
        if not path.exists():
            try:
                content = zlib.decompress(self._database.code(code.digest))
            except zlib.error as error:
                raise PreflightError(
                    f"the code index of this submission cannot be read ({error}): submit the item again"
                ) from error
            written = path.with_suffix(".tmp")  # so that a full disk leaves no partial index behind
            written.write_bytes(content)
            written.replace(path)
        return CodeAccess(str(path), code.snapshot, code.commit, code.tokens, code.named)
