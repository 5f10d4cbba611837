"""Runs the callers of one client: each takes the next call until none is left."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable

from bench.keypool.job import Job, Report

SendCall = Callable[[int, int], Awaitable[None]]
"""Takes the numbers of caller and call; returns when the call is answered, raises when the client gives up."""


async def drive(job: Job, send: SendCall) -> Report:
    served = [0] * job.callers
    numbers = iter(range(job.calls))
    errors: list[str] = []

    async def caller(me: int) -> None:
        for number in numbers:
            try:
                await send(me, number)
                served[me] += 1
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")

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
        error_text=f"not done in {job.seconds:.0f} s" if late else errors[0][:300] if errors else "",
    )
