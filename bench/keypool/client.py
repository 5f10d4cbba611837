"""One client process: reads its job, reports that it is ready, starts at a given moment, and prints its report.

PYTHON -m bench.keypool.client NAME
"""

import asyncio
import contextlib
import importlib
import sys
import time
from typing import Protocol

from bench.keypool.drive import SendCall, drive
from bench.keypool.job import Job, Report, read_job, report_line

MODULES = {
    "ours": "ours",
    "gateway": "gateway",
    "library": "library",
    "litellm": "litellm",
    "litellm-patient": "litellm_patient",
    "inspect_ai": "inspect",
    "tenacity": "tenacity",
    "aiolimiter": "aiolimiter",
}


class Client(Protocol):
    """A module in clients/. `open_client` may import and connect before the clock starts."""

    def open_client(self, job: Job) -> contextlib.AbstractAsyncContextManager[SendCall]: ...


async def perform(client: Client, job: Job) -> Report:
    async with client.open_client(job) as send:
        print("ready", flush=True)
        start_at = float(sys.stdin.readline())
        await asyncio.sleep(start_at - time.monotonic())
        return await drive(job, send)


def main() -> None:
    job = read_job(sys.stdin.readline())
    out = sys.stdout
    client: Client = importlib.import_module(f"bench.keypool.clients.{MODULES[sys.argv[1]]}")
    report = asyncio.run(perform(client, job))
    print(report_line(report), file=out, flush=True)


if __name__ == "__main__":
    main()
