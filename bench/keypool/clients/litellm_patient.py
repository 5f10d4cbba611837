"""LiteLLM's Router in a loop that waits out its cooldowns and tries again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bench.keypool.clients.litellm import complete, make_router
from bench.keypool.drive import SendCall
from bench.keypool.job import Job

RETRY_DELAY = 1.0


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    router = make_router(job)

    async def send(_: int, call: int) -> None:
        while True:
            try:
                return await complete(router, job.prompt(call))
            except Exception as error:
                # Its errors have no base of their own; only one of them names the end of the cooldown.
                await asyncio.sleep(getattr(error, "cooldown_time", RETRY_DELAY))

    yield send
