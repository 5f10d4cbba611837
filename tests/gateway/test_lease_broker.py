"""LeaseBroker with many keys and many waiting calls: what a decision costs, and that nobody waits in vain."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest

from agentos.core.protocol.events import LeaseReleased, LeaseRequested
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Budget, PriceList
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.text.secrets import Secret
from agentos.gateway.lease_broker import LeaseBroker, NoKey
from agentos.storage.peer_log import NoPeers

MODEL = "gemini-2.5-flash"
MAX_WAIT = 60.0


class _Gateway:
    """A broker with a clock that stands still unless it is moved, and keys of one call a minute each."""

    def __init__(self, keys: int) -> None:
        rates = ((Dimension.REQUESTS, Rate(1, 60.0)),)
        self.pool = Pool(
            [
                Credential(f"key-{n}", "gemini", Secret(f"the key number {n}"), rates=rates)
                for n in range(keys)
            ]
        )
        self.now = 1000.0
        manager = LeaseManager(self.pool, lambda: 0.5, Budget(PriceList()))
        self.broker = LeaseBroker(manager, NoPeers(), lambda: self.now, lambda event: None)
        self.calls: list[asyncio.Task[Lease]] = []

    async def ask(self, holder: str) -> "asyncio.Task[Lease]":
        wanted = LeaseRequested(holder, "call", ("gemini",), (MODEL,), 100, 100)
        call = asyncio.ensure_future(self.broker.acquire(wanted, self.now + MAX_WAIT, lambda reason: None))
        self.calls.append(call)
        await asyncio.sleep(0)
        return call

    async def use_every_key(self) -> list[Lease]:
        return [await (await self.ask(f"used {number}")) for number in range(len(self.pool.keys))]

    def release(self, lease: Lease, refusal: Refusal | None = None) -> None:
        self.broker.release(
            LeaseReleased(lease.request.holder, lease.id, 1.0, Usage(1, 100, 100), refusal, MODEL)
        )

    async def close(self) -> None:
        self.broker.close()
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)


class _Instructions:
    """Counts the bytecode instructions of a block."""

    def __enter__(self) -> "_Instructions":
        self.count = 0
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes = True
        self.count += event == "opcode"
        return self._trace


async def _gateway_at_its_limit(keys: int, waiting: int) -> tuple[_Gateway, list[Lease]]:
    gateway = _Gateway(keys)
    used = await gateway.use_every_key()
    for number in range(waiting):
        await gateway.ask(f"waiting {number}")
    return gateway, used


async def _to_release(keys: int, waiting: int) -> int:
    """Instructions to end ten calls while every key is at its limit."""
    gateway, used = await _gateway_at_its_limit(keys, waiting)
    with _Instructions() as instructions:
        for lease in used[:10]:
            gateway.release(lease)
    await gateway.close()
    return instructions.count


async def _to_give_up(keys: int, waiting: int) -> int:
    """Instructions to drop ten waiting calls after every key has been refused for a while."""
    gateway, used = await _gateway_at_its_limit(keys, waiting)
    for lease in used:
        gateway.release(lease, Refusal(RefusalKind.RATE_LIMITED, "429", 30.0))
    with _Instructions() as instructions:
        for number in range(10):
            gateway.broker.forget(f"waiting {number}")
    await gateway.close()
    return instructions.count


@pytest.mark.parametrize("measure", [_to_release, _to_give_up])
def test_a_decision_looks_neither_at_every_key_nor_at_every_call(
    measure: Callable[[int, int], Coroutine[Any, Any, int]],
) -> None:
    few, many = asyncio.run(measure(300, 40)), asyncio.run(measure(1000, 250))
    assert many < 1.5 * few


@pytest.mark.parametrize("keys", [3, 300])
def test_calls_that_no_key_can_serve_in_time_are_told_so_at_once(keys: int) -> None:
    async def story() -> None:
        gateway = _Gateway(keys)
        try:
            for lease in await gateway.use_every_key():
                gateway.release(lease, Refusal(RefusalKind.RATE_LIMITED, "429", 600.0))
            for number in range(3):
                call = await gateway.ask(f"late {number}")
                await asyncio.sleep(0.3 if keys > 100 else 0)
                gateway.now += 0.3
                with pytest.raises(NoKey, match="rate limited"):
                    await asyncio.wait_for(call, 5.0)
        finally:
            await gateway.close()

    asyncio.run(story())
