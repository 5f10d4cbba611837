"""Round robin with aiolimiter, one limiter per key and process; refusals are waited out, longer each time."""

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
FIRST_PATIENCE = 0.1


@contextlib.asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Ask]:
    wire = Wire(job.url)
    keys = itertools.cycle([_Limited(key) for key in job.keys])

    async def ask(_: int, call: int) -> None:
        prompt = job.prompt(call)
        for attempt in itertools.count():
            key = next(keys)
            await key.wait(len(prompt) // CHARACTERS_A_TOKEN + ANSWER_TOKENS)
            heard = await wire.ask(key.secret, prompt)
            if heard.status == 200:
                return
            await asyncio.sleep((heard.retry_after or 0.0) + min(FIRST_PATIENCE * 2**attempt, 60))

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
