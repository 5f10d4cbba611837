"""agentos: `CredentialCoordinator` of the library, in threads; it is told of refusals and of nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from agentos.core.quota.credentials import Credential
from agentos.core.text.secrets import Secret
from agentos.parallel import CredentialCoordinator
from bench.keypool.call import GeminiConnections
from bench.keypool.drive import SendCall
from bench.keypool.job import Job

FIRST_RETRY_DELAY = 0.25  # seconds after a refusal without a hint, doubled each time


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    connections = GeminiConnections(job.url)
    coordinator = CredentialCoordinator(
        [Credential(key.name, "gemini", Secret(key.secret), concurrency=job.concurrency) for key in job.keys]
    )
    with ThreadPoolExecutor(job.callers) as threads:
        reserve = asyncio.get_running_loop().run_in_executor

        async def send(_: int, call: int) -> None:
            delay = FIRST_RETRY_DELAY
            while key := await reserve(threads, coordinator.reserve):
                response = await connections.send(str(key), job.prompt(call))
                if response.status == 200:
                    coordinator.release(key)
                    return
                coordinator.mark_rate_limited(key, response.retry_after or delay)
                delay *= 2

        yield send
        await connections.close()
