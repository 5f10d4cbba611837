"""Round robin with aiolimiter: one limiter per key and process, told the limits; refusals are waited out."""

import asyncio
import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from bench.keypool.call import Wire
from bench.keypool.drive import Ask
from bench.keypool.job import Job, JobKey, Told

CHARACTERS_A_TOKEN = 4
ANSWER_TOKENS = 40
PATIENCE = 1.0


@contextlib.asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Ask]:
    wire = Wire(job.url)
    keys = itertools.cycle([_Limited(key) for key in job.keys])

    async def ask(_: int, call: int) -> None:
        prompt = job.prompt(call)
        while True:
            key = next(keys)
            await key.wait(len(prompt) // CHARACTERS_A_TOKEN + ANSWER_TOKENS)
            heard = await wire.ask(key.secret, prompt)
            if heard.status == 200:
                return
            await asyncio.sleep(PATIENCE if heard.retry_after is None else heard.retry_after)

    yield ask
    await wire.close()


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


def _limiter(told: Told | None) -> Any:
    return importlib.import_module("aiolimiter").AsyncLimiter(told.amount, told.seconds) if told else None
