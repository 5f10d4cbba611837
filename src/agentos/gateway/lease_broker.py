"""Lends keys to the calls of one process, the pool's owner towards the neighbours."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.shared_turn import with_shared_lock
from agentos.gateway.dialects.base import GatewayError

BUSY_HINT = 5.0
PATIENT_FOR = 2.0


class NoKey(Exception):
    """No key for a call, now or within its time; `seconds` is when to ask again."""

    def __init__(self, trouble: GatewayError, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.error = trouble
        self.seconds = seconds


@dataclass(slots=True)
class _PendingLease:
    granted: asyncio.Future[Lease]
    until: float


class LeaseBroker:
    """Lives on one event loop; every wish ends with a lease, with NoKey, or with its caller."""

    def __init__(
        self,
        lease_manager: LeaseManager,
        peers: PeerLog,
        clock: Callable[[], float],
        tell: Callable[[events.News], None],
    ) -> None:
        self._lease_manager = lease_manager
        self._peers = peers
        self._clock = clock
        self._publish = tell
        self._waiting: dict[str, _PendingLease] = {}
        self._wakeup: asyncio.TimerHandle | None = None

    # What calls do.

    async def acquire(
        self, wish: events.LeaseRequested, until: float, on_wait: Callable[[str], None]
    ) -> Lease:
        """A key for one call; `on_wait` is told what is waited for, if it takes a while."""
        waiting = _PendingLease(asyncio.get_running_loop().create_future(), until)
        self._waiting[wish.item] = waiting
        self._decide(lambda now: self._lease_manager.request(wish, now))
        try:
            return await self._wait_for_grant(wish, waiting, on_wait)
        except BaseException:
            if waiting.granted.done():
                waiting.granted.exception()
            self.forget(wish.item)
            raise

    async def _wait_for_grant(
        self, wish: events.LeaseRequested, waiting: _PendingLease, on_wait: Callable[[str], None]
    ) -> Lease:
        if not waiting.granted.done():
            await asyncio.wait([waiting.granted], timeout=min(PATIENT_FOR, self._left(waiting)))
        if not waiting.granted.done():
            on_wait(self._reason(wish.providers[0]))
            await asyncio.wait([waiting.granted], timeout=self._left(waiting))
        if not waiting.granted.done():
            raise self._too_late(wish.providers[0])
        return waiting.granted.result()

    def release(self, event: events.LeaseReleased) -> list[events.News]:
        found: list[events.News] = []
        self._decide(lambda now: found.extend(self._lease_manager.release(event, now)))
        for news in found:
            self._publish(news)
        return found

    def forget(self, holder: str) -> None:
        """The caller is gone: its wish, or its lease, with it."""
        self._waiting.pop(holder, None)
        self._decide(lambda now: self._lease_manager.drop_holder(holder))

    def replace(self, credentials: list[Credential]) -> None:
        found: list[events.News] = []
        self._decide(lambda now: found.extend(self._lease_manager.replace_credentials(credentials)))
        for news in found:
            self._publish(news)

    def close(self) -> None:
        if self._wakeup:
            self._wakeup.cancel()

    @property
    def lease_manager(self) -> LeaseManager:
        return self._lease_manager

    # The decision.

    def _decide(self, change: Callable[[float], None]) -> None:
        # A gateway that cannot tell the others serves its callers all the same: they have no pause to wait in.
        leases, _ = with_shared_lock(self._lease_manager, self._peers, lambda: self._grant(change))
        for news in self._lease_manager.breaker_news(self._clock()):
            self._publish(news)
        for lease in leases:
            waiting = self._waiting.pop(lease.request.holder, None)
            if waiting and not waiting.granted.done():
                waiting.granted.set_result(lease)
        self._fail_unservable()
        self._schedule_wakeup()

    def _grant(self, change: Callable[[float], None]) -> list[Lease]:
        now = self._clock()
        change(now)
        return self._lease_manager.grants(now)

    def _fail_unservable(self) -> None:
        now, pool = self._clock(), self._lease_manager.pool
        for want in pool.waiting(now) if self._waiting else ():
            waiting = self._waiting.get(want.holder)
            reason = self._unservable(want, waiting, now) if waiting else None
            if waiting and reason and not waiting.granted.done():
                waiting.granted.set_exception(reason)
                pool.drop_holder(want.holder)

    def _unservable(self, want: LeaseRequest, waiting: _PendingLease, now: float) -> NoKey | None:
        pool, budget, provider = self._lease_manager.pool, self._lease_manager.budget, want.providers[0]
        if budget.refused and not pool.held():
            return NoKey(GatewayError.UNPAID, f"the next call would pass the budget of ${budget.budget:.2f}")
        back = pool.back_for(want, now)
        if back is None:
            return NoKey(
                GatewayError.NO_KEY, f"there is no usable {provider} key{_why(pool.keys.quarantined())}"
            )
        if back[0] > waiting.until:
            return _resting(provider, back[1], back[0] - now)
        return None

    def _too_late(self, provider: str) -> NoKey:
        storm = any(name == provider for name, _ in self._lease_manager.pool.open_breakers())
        trouble = GatewayError.FAILING if storm else GatewayError.LIMITED
        return NoKey(trouble, self._reason(provider), BUSY_HINT)

    def _reason(self, provider: str) -> str:
        pool, now = self._lease_manager.pool, self._clock()
        if any(name == provider for name, _ in pool.open_breakers()):
            return f"{provider} is failing for everybody"
        if not pool.keys.usable_slots(now) and (earliest := pool.keys.earliest(now)):
            return f"all keys are rate limited, {earliest[1]} for another {earliest[0] - now:.0f} s"
        return f"every {provider} key is in use, or paced by its limits"

    def _left(self, waiting: _PendingLease) -> float:
        return max(0.0, waiting.until - self._clock())

    def _schedule_wakeup(self) -> None:
        """Every wait has an end: whatever the pool waits for, it is looked at again then."""
        if self._wakeup:
            self._wakeup.cancel()
        now = self._clock()
        due = self._lease_manager.wake_at(now) if self._waiting else None
        loop = asyncio.get_running_loop()
        self._wakeup = (
            None if due is None else loop.call_later(max(0.0, due - now), self._decide, _nothing_new)
        )


def _nothing_new(now: float) -> None:
    """Only time has passed."""


def _resting(provider: str, key: str, seconds: float) -> NoKey:
    message = f"every {provider} key is rate limited; the first one back is {key}, in {seconds:.0f} s"
    return NoKey(GatewayError.LIMITED, message, seconds)


def _why(quarantined: dict[str, str]) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in quarantined.items())
    return f" ({reasons})" if reasons else ""
