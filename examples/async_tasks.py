"""Retry coroutines that sometimes fail: python examples/async_tasks.py"""

import asyncio
import random

from agentos.parallel import run_parallel


async def fetch(task: str) -> str:
    await asyncio.sleep(0.01)
    if random.random() < 0.3:
        raise ConnectionError("simulated network error")
    return task.upper()


for result in asyncio.run(run_parallel(["alpha", "beta", "gamma", "delta"], fetch, max_workers=2)):
    print(f"{result.task}: {result.result or result.error} (attempt {result.attempts})")
