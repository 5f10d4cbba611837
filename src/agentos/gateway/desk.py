"""Lends keys to the calls of one process, the pool's owner towards the neighbours."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.leasing import Leasing
from agentos.core.ports import Neighbours
from agentos.core.turns import in_turn
from agentos.core.wants import Lease, Want
from agentos.gateway.dialects.dialect import Trouble

BUSY_HINT = 5.0
PATIENT_FOR = 2.0


class NoKey(Exception):
    """No key for a call, now or within its time; `seconds` is when to ask again."""

    def __init__(self, trouble: Trouble, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.seconds = seconds


@dataclass(slots=True)
class _Waiting:
    granted: asyncio.Future[Lease]
    until: float


class Desk:
    """Lives on one event loop; every wish ends with a lease, with NoKey, or with its caller."""

    def __init__(
        self,
        leasing: Leasing,
        neighbours: Neighbours,
        clock: Callable[[], float],
        tell: Callable[[events.News], None],
    ) -> None:
        self._leasing = leasing
        self._neighbours = neighbours
        self._clock = clock
        self._tell = tell
        self._waiting: dict[str, _Waiting] = {}
        self._alarm: asyncio.TimerHandle | None = None

    # What calls do.

    async def lend(self, wish: events.LeaseWanted, until: float, on_wait: Callable[[str], None]) -> Lease:
        """A key for one call; `on_wait` is told what is waited for, if it takes a while."""
        waiting = _Waiting(asyncio.get_running_loop().create_future(), until)
        self._waiting[wish.item] = waiting
        self._decide(lambda now: self._leasing.wanted(wish, now))
        try:
            return await self._patiently(wish, waiting, on_wait)
        except BaseException:
            if waiting.granted.done():
                waiting.granted.exception()
            self.forget(wish.item)
            raise

    async def _patiently(
        self, wish: events.LeaseWanted, waiting: _Waiting, on_wait: Callable[[str], None]
    ) -> Lease:
        if not waiting.granted.done():
            await asyncio.wait([waiting.granted], timeout=min(PATIENT_FOR, self._left(waiting)))
        if not waiting.granted.done():
            on_wait(self._reason(wish.providers[0]))
            await asyncio.wait([waiting.granted], timeout=self._left(waiting))
        if not waiting.granted.done():
            raise self._too_late(wish.providers[0])
        return waiting.granted.result()

    def give_back(self, event: events.LeaseReturned) -> list[events.News]:
        found: list[events.News] = []
        self._decide(lambda now: found.extend(self._leasing.returned(event, now)))
        for news in found:
            self._tell(news)
        return found

    def forget(self, holder: str) -> None:
        """The caller is gone: its wish, or its lease, with it."""
        self._waiting.pop(holder, None)
        self._decide(lambda now: self._leasing.gone(holder))

    def replace(self, credentials: list[Credential]) -> None:
        found: list[events.News] = []
        self._decide(lambda now: found.extend(self._leasing.replaced(credentials)))
        for news in found:
            self._tell(news)

    def close(self) -> None:
        if self._alarm:
            self._alarm.cancel()

    @property
    def leasing(self) -> Leasing:
        return self._leasing

    # The decision.

    def _decide(self, change: Callable[[float], None]) -> None:
        # A gateway that cannot tell the others serves its callers all the same: they have no pause to wait in.
        leases, _ = in_turn(self._leasing, self._neighbours, lambda: self._grant(change))
        for news in self._leasing.weather_news(self._clock()):
            self._tell(news)
        for lease in leases:
            waiting = self._waiting.pop(lease.want.holder, None)
            if waiting and not waiting.granted.done():
                waiting.granted.set_result(lease)
        self._end_the_hopeless()
        self._set_alarm()

    def _grant(self, change: Callable[[float], None]) -> list[Lease]:
        now = self._clock()
        change(now)
        return self._leasing.grants(now)

    def _end_the_hopeless(self) -> None:
        now, pool = self._clock(), self._leasing.pool
        for want in pool.waiting(now) if self._waiting else ():
            waiting = self._waiting.get(want.holder)
            reason = self._hopeless(want, waiting, now) if waiting else None
            if waiting and reason and not waiting.granted.done():
                waiting.granted.set_exception(reason)
                pool.forget(want.holder)

    def _hopeless(self, want: Want, waiting: _Waiting, now: float) -> NoKey | None:
        pool, purse, provider = self._leasing.pool, self._leasing.purse, want.providers[0]
        if purse.refused and not pool.held():
            return NoKey(Trouble.UNPAID, f"the next call would pass the budget of ${purse.budget:.2f}")
        back = pool.back_for(want, now)
        if back is None:
            return NoKey(Trouble.NO_KEY, f"there is no usable {provider} key{_why(pool.keys.quarantined())}")
        if back[0] > waiting.until:
            return _resting(provider, back[1], back[0] - now)
        return None

    def _too_late(self, provider: str) -> NoKey:
        storm = any(name == provider for name, _ in self._leasing.pool.storms())
        trouble = Trouble.FAILING if storm else Trouble.LIMITED
        return NoKey(trouble, self._reason(provider), BUSY_HINT)

    def _reason(self, provider: str) -> str:
        pool, now = self._leasing.pool, self._clock()
        if any(name == provider for name, _ in pool.storms()):
            return f"{provider} is failing for everybody"
        if not pool.keys.usable_slots(now) and (earliest := pool.keys.earliest(now)):
            return f"all keys are rate limited, {earliest[1]} for another {earliest[0] - now:.0f} s"
        return f"every {provider} key is in use, or paced by its limits"

    def _left(self, waiting: _Waiting) -> float:
        return max(0.0, waiting.until - self._clock())

    def _set_alarm(self) -> None:
        """Every wait has an end: whatever the pool waits for, it is looked at again then."""
        if self._alarm:
            self._alarm.cancel()
        now = self._clock()
        due = self._leasing.wake_at(now) if self._waiting else None
        loop = asyncio.get_running_loop()
        self._alarm = (
            None if due is None else loop.call_later(max(0.0, due - now), self._decide, _nothing_new)
        )


def _nothing_new(now: float) -> None:
    """Only time has passed."""


def _resting(provider: str, key: str, seconds: float) -> NoKey:
    message = f"every {provider} key is rate limited; the first one back is {key}, in {seconds:.0f} s"
    return NoKey(Trouble.LIMITED, message, seconds)


def _why(quarantined: dict[str, str]) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in quarantined.items())
    return f" ({reasons})" if reasons else ""
