"""One client process: reads its job, says that it is ready, goes at a given moment, reports.

PYTHON -m bench.keypool.client NAME
"""

import asyncio
import contextlib
import importlib
import sys
import time
from typing import Protocol

from bench.keypool.drive import Ask, drive
from bench.keypool.job import Job, Report, read_job, report_line

MODULES = {
    "ours": "ours",
    "litellm": "litellm",
    "litellm-patient": "litellm_patient",
    "inspect_ai": "inspect",
    "tenacity": "tenacity",
    "aiolimiter": "aiolimiter",
}


class Client(Protocol):
    """A module of the clients; `prepared` may import and connect at leisure."""

    def prepared(self, job: Job) -> contextlib.AbstractAsyncContextManager[Ask]: ...


async def perform(client: Client, job: Job) -> Report:
    async with client.prepared(job) as ask:
        print("ready", flush=True)
        go_at = float(sys.stdin.readline())
        await asyncio.sleep(go_at - time.monotonic())
        return await drive(job, ask)


def main() -> None:
    job = read_job(sys.stdin.readline())
    out = sys.stdout
    client: Client = importlib.import_module(f"bench.keypool.clients.{MODULES[sys.argv[1]]}")
    report = asyncio.run(perform(client, job))
    print(report_line(report), file=out, flush=True)


if __name__ == "__main__":
    main()
