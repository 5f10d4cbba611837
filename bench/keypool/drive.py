"""Callers that take call after call from one heap until none is left."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable

from bench.keypool.job import Job, Report

Ask = Callable[[int, int], Awaitable[None]]
"""Given the caller and the number of the call; returns when it is answered, raises when it is given up."""


async def drive(job: Job, ask: Ask) -> Report:
    served = [0] * job.callers
    numbers = iter(range(job.calls))
    troubles: list[str] = []

    async def caller(me: int) -> None:
        for number in numbers:
            try:
                await ask(me, number)
                served[me] += 1
            except Exception as error:
                troubles.append(f"{type(error).__name__}: {error}")

    began, cpu = time.monotonic(), time.process_time()
    tasks = [asyncio.create_task(caller(me)) for me in range(job.callers)]
    _, late = await asyncio.wait(tasks, timeout=job.seconds)
    seconds = time.monotonic() - began
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Report(
        served=tuple(served),
        seconds=seconds,
        cpu=time.process_time() - cpu,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        trouble=f"not done in {job.seconds:.0f} s" if late else troubles[0][:300] if troubles else "",
    )
