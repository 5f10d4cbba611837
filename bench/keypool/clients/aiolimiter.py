"""Round robin with aiolimiter, one limiter per key and process; backs off after refusals."""

import asyncio
import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from bench.keypool.call import GeminiConnections
from bench.keypool.drive import SendCall
from bench.keypool.job import Job, JobKey, KnownLimit

CHARACTERS_A_TOKEN = 4
ANSWER_TOKENS = 40
FIRST_RETRY_DELAY = 0.1


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    connections = GeminiConnections(job.url)
    keys = itertools.cycle([_Limited(key) for key in job.keys])

    async def send(_: int, call: int) -> None:
        prompt = job.prompt(call)
        for attempt in itertools.count():
            key = next(keys)
            await key.wait(len(prompt) // CHARACTERS_A_TOKEN + ANSWER_TOKENS)
            response = await connections.send(key.secret, prompt)
            if response.status == 200:
                return
            await asyncio.sleep((response.retry_after or 0.0) + min(FIRST_RETRY_DELAY * 2**attempt, 60))

    yield send
    await connections.close()


class _Limited:
    def __init__(self, key: JobKey) -> None:
        self.secret = key.secret
        self._requests = _limiter(key.requests)
        self._tokens = _limiter(key.tokens)

    async def wait(self, tokens: int) -> None:
        if self._requests:
            await self._requests.acquire()
        if self._tokens:
            await self._tokens.acquire(min(tokens, self._tokens.max_rate))


def _limiter(known: KnownLimit | None) -> Any:
    return importlib.import_module("aiolimiter").AsyncLimiter(known.amount, known.seconds) if known else None
