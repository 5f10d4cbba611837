"""inspect_ai: its adaptive concurrency and its own retries, one model per key, round robin."""

import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator

from bench.keypool.drive import SendCall
from bench.keypool.job import Job


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    inspect_ai = importlib.import_module("inspect_ai.model")
    models = itertools.cycle(
        [
            inspect_ai.get_model(
                "openai-api/offline/offline-rules-1",
                base_url=f"{job.url}/v1",
                api_key=key.secret,
                memoize=False,
            )
            for key in job.keys
        ]
    )

    async def send(_: int, call: int) -> None:
        output = await next(models).generate(job.prompt(call))
        if output.error:
            raise RuntimeError(output.error)

    yield send
