"""Finds items whose Temporal workflow ended without recording that in Postgres."""

import asyncio
import threading
import time
from collections.abc import Sequence

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agentos.core.errors import PreflightError
from agentos.fleet.temporal import connect_temporal, map_bounded, workflow_status

CHECK_INTERVAL = 10.0  # seconds
SUSPECT_INTERVAL = 2.0  # seconds; after a check that found one missing
Missing = dict[str, WorkflowExecutionStatus | None]


class LostWorkflows:
    """Asks Temporal at intervals, in a separate thread, so that a slow Temporal delays nothing else.

    A workflow must be missing in two consecutive checks: somebody may just be submitting its item again.
    """

    def __init__(self) -> None:
        self._found: Missing | None = None
        self._before: Missing = {}
        self._thread: threading.Thread | None = None
        self._due = 0.0

    def look(self, threads: Sequence[str]) -> Missing:
        """The items that were missing in the last two checks. Starts the next check when it is due."""
        if self._thread is not None:
            if self._thread.is_alive():
                return {}
            self._thread = None
            found, self._found = self._found, None
            if found is None:
                return {}  # Temporal did not answer
            lost = {thread: status for thread, status in found.items() if thread in self._before}
            self._before = found
            self._due = time.monotonic() + (SUSPECT_INTERVAL if found else CHECK_INTERVAL)
            return {thread: status for thread, status in lost.items() if thread in threads}
        if threads and time.monotonic() >= self._due:
            self._due = time.monotonic() + CHECK_INTERVAL
            self._thread = threading.Thread(target=self._check, args=(list(threads),), daemon=True)
            self._thread.start()
        return {}

    def _check(self, threads: list[str]) -> None:
        try:
            self._found = asyncio.run(_missing(threads))
        except (RPCError, PreflightError):
            self._found = None


async def _missing(threads: list[str]) -> Missing:
    client = await connect_temporal()
    found = await map_bounded(lambda thread: workflow_status(client, thread), threads)
    return {
        thread: status
        for thread, status in zip(threads, found, strict=True)
        if status is not WorkflowExecutionStatus.RUNNING
    }
