"""Round robin with tenacity: the next key for each attempt, exponential backoff, Retry-After honoured."""

import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

from bench.keypool.call import GeminiConnections
from bench.keypool.drive import SendCall
from bench.keypool.job import Job


class Refused(Exception):
    def __init__(self, retry_after: float | None) -> None:
        super().__init__("refused")
        self.retry_after = retry_after


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    tenacity = importlib.import_module("tenacity")
    connections, keys = GeminiConnections(job.url), itertools.cycle(job.keys)
    grown = tenacity.wait_random_exponential(multiplier=0.1, max=60)

    def wait(state: Any) -> float:
        seconds: float = (state.outcome.exception().retry_after or 0.0) + grown(state)
        return seconds

    @tenacity.retry(wait=wait, retry=tenacity.retry_if_exception_type(Refused))  # type: ignore[untyped-decorator]
    async def attempt(prompt: str) -> None:
        response = await connections.send(next(keys).secret, prompt)
        if response.status != 200:
            raise Refused(response.retry_after)

    async def send(_: int, call: int) -> None:
        await attempt(job.prompt(call))

    yield send
    await connections.close()
