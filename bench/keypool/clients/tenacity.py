"""Round robin with tenacity: the next key for each attempt, exponential backoff, Retry-After honoured."""

import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from bench.keypool.call import Wire
from bench.keypool.drive import Ask
from bench.keypool.job import Job


class Refused(Exception):
    def __init__(self, retry_after: float | None) -> None:
        super().__init__("refused")
        self.retry_after = retry_after


@contextlib.asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Ask]:
    tenacity = importlib.import_module("tenacity")
    wire, keys = Wire(job.url), itertools.cycle(job.keys)
    grown = tenacity.wait_random_exponential(multiplier=0.1, max=60)

    def wait(state: Any) -> float:
        seconds: float = (state.outcome.exception().retry_after or 0.0) + grown(state)
        return seconds

    @tenacity.retry(wait=wait, retry=tenacity.retry_if_exception_type(Refused))  # type: ignore[untyped-decorator]
    async def attempt(prompt: str) -> None:
        heard = await wire.ask(next(keys).secret, prompt)
        if heard.status != 200:
            raise Refused(heard.retry_after)

    async def ask(_: int, call: int) -> None:
        await attempt(job.prompt(call))

    yield ask
    await wire.close()
