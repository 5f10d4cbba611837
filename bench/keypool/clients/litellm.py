"""LiteLLM's Router with its defaults, given the calls and tokens per minute of each key."""

import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

from bench.keypool.drive import SendCall
from bench.keypool.job import Job, JobKey

GROUP = "drafter"


@contextlib.asynccontextmanager
async def open_client(job: Job) -> AsyncIterator[SendCall]:
    router = make_router(job)

    async def send(_: int, call: int) -> None:
        await complete(router, job.prompt(call))

    yield send


def make_router(job: Job) -> Any:
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm.Router(model_list=[_deployment(key, job.url) for key in job.keys])


async def complete(router: Any, prompt: str) -> None:
    await router.acompletion(model=GROUP, messages=[{"role": "user", "content": prompt}])


def _deployment(key: JobKey, url: str) -> dict[str, object]:
    parameters: dict[str, object] = {
        "model": "openai/offline-rules-1",
        "api_base": f"{url}/v1",
        "api_key": key.secret,
    }
    if key.requests:
        parameters["rpm"] = int(60 * key.requests.amount / key.requests.seconds)
    if key.tokens:
        parameters["tpm"] = int(60 * key.tokens.amount / key.tokens.seconds)
    return {"model_name": GROUP, "litellm_params": parameters}
