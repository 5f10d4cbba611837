"""Watches the key pool as a whole: low, exhausted, limited, throttled, or unable to serve the run at all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agentos.core.planning.worker_task import RoleModel
from agentos.core.protocol import events
from agentos.core.quota.pool import Pool

MIN_REPORTED_WAIT = 5.0  # seconds; shorter waits are normal rate limiting and not worth a message


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why the run must stop. `seconds`: how long until it could continue, if known."""

    exit_code: int
    reason: str
    detail: str
    seconds: float | None = None


class PoolMonitor:
    """Reports changes in the state of the pool, and decides whether items may start and whether the run must stop.

    Each condition is reported once when it begins and once when it is over.
    """

    def __init__(self, pool: Pool, max_wait: float) -> None:
        self._pool = pool
        self._max_wait = max_wait
        self._low = False
        self._exhausted_since: float | None = None
        self._limited_since: float | None = None
        self._throttled_until = 0.0

    def update(self, now: float) -> list[events.SchedulerEvent]:
        """The conditions that began or ended since the last call."""
        waiting, slots = self._pool.waiting(now), self._pool.keys.usable_slots(now)
        return [
            *self._check_low(slots),
            *self._check_exhausted(len(waiting), slots, now),
            *self._check_all_limited(bool(waiting), slots, now),
            *self._check_throttled(now),
        ]

    def scarcest_keys(
        self, roles: Sequence[RoleModel], workers: int, now: float
    ) -> events.KeysFewerThanWorkers:
        """How many calls the keys allow at once: all keys, or those of one role if they allow fewer."""
        keys = self._pool.keys
        total = keys.usable_slots(now)
        found = [events.KeysFewerThanWorkers(total, workers)]
        for role in roles:
            slots = keys.usable_slots(now, role.providers)
            if slots < total:
                found.append(events.KeysFewerThanWorkers(slots, workers, role.role, role.providers))
        return min(found, key=lambda event: event.slots)

    def hold_starts(self, now: float) -> bool:
        """Whether no further item should start while others run."""
        paused = self._exhausted_since is not None or self._limited_since is not None
        blocked = bool(self._pool.open_breakers()) and not self._healthy_providers()
        return paused or blocked or self._pool.keys.usable_slots(now) < 2

    def stop_reason(self, now: float) -> StopReason | None:
        if not self._pool.keys.active():
            return StopReason(4, "no usable key", _why_none(self._pool))
        for provider, model, since in self._pool.open_breakers():
            if now >= self._max_wait_end(since) and self._breakers_block_calls(now):
                detail = f"{f'{provider} {model}'.rstrip()} has failed for longer than --max-wait"
                return StopReason(75, "provider failing", detail)
        for request in self._pool.waiting(now):
            back = self._pool.recovery_for(request, now)
            if back is None:
                return StopReason(4, "no usable key", f"none for {request.holder}; {_why_none(self._pool)}")
            if back[0] - now > self._max_wait:
                detail = f"no key comes back within --max-wait; the first is {back[1]}"
                return StopReason(75, "quota", detail, back[0] - now)
        if (throttled := self._throttled(now)) and throttled[0] - now > self._max_wait:
            detail = f"no key may be used within --max-wait; the first is {throttled[1]}"
            return StopReason(75, "quota", detail, throttled[0] - now)
        return None

    def _healthy_providers(self) -> set[str]:
        """The providers that have a key and no open circuit breaker."""
        return set(self._pool.keys.providers()) - {found.provider for found in self._pool.open_breakers()}

    def _breakers_block_calls(self, now: float) -> bool:
        """Whether open breakers leave no provider, or none for some waiting request."""
        healthy = self._healthy_providers()
        return not healthy or any(
            healthy.isdisjoint(request.providers) for request in self._pool.waiting(now)
        )

    def wake_at(self, now: float) -> float | None:
        """When an open breaker reaches --max-wait, or a key may serve again."""
        ends = (self._max_wait_end(found.since) for found in self._pool.open_breakers())
        moments = [at for at in ends if at > now]
        if earliest := self._pool.keys.next_allowed(now):
            moments.append(earliest[0])
        if recovery := self._pool.keys.next_recovery(now):
            moments.append(recovery.at)
        return min(moments, default=None)

    def _max_wait_end(self, since: float) -> float:
        """The first float after --max-wait, so that `wake_at` and `stop_reason` compare the same number."""
        return math.nextafter(since + self._max_wait, math.inf)

    def _check_low(self, slots: int) -> list[events.SchedulerEvent]:
        was, self._low = self._low, slots < 2
        return [events.PoolLow(slots)] if self._low and not was and slots == 1 else []

    def _check_exhausted(self, waiting: int, slots: int, now: float) -> list[events.SchedulerEvent]:
        begins = self._exhausted_since is None and waiting and slots and not self._pool.open_breakers()
        if begins and self._pool.keys.all_held(now):
            self._exhausted_since = now
            return [events.PoolExhausted(waiting, slots)]
        if self._exhausted_since is not None and not waiting:
            since, self._exhausted_since = self._exhausted_since, None
            return [events.PoolRestored(now - since)]
        return []

    def _check_all_limited(self, waiting: bool, slots: int, now: float) -> list[events.SchedulerEvent]:
        begins = self._limited_since is None and waiting and not slots
        if begins and (earliest := self._pool.keys.next_allowed(now)):
            self._limited_since = now
            at, name = self._pool.keys.next_recovery(now) or earliest
            return [events.AllKeysLimited(name, at - now)]
        if self._limited_since is not None and (slots or not waiting):
            since, self._limited_since = self._limited_since, None
            return [events.KeysAvailable(now - since)]
        return []

    def _check_throttled(self, now: float) -> list[events.SchedulerEvent]:
        if self._pool.held():
            self._throttled_until = 0.0
        if (
            now < self._throttled_until
            or not (throttled := self._throttled(now))
            or throttled[0] - now < MIN_REPORTED_WAIT
        ):
            return []
        self._throttled_until = throttled[0]
        return [events.CallsThrottled(throttled[1], throttled[0] - now)]

    def _throttled(self, now: float) -> tuple[float, str] | None:
        """When the first waiting request is served and by which key, if rate limits alone hold up all of them."""
        if self._pool.held() or self._pool.open_breakers() or self._limited_since is not None:
            return None
        due, waiting = self._pool.wake_at(now), self._pool.waiting(now)
        if due is None or due - now < MIN_REPORTED_WAIT or not waiting:
            return None
        return due, min(self._pool.next_allowed_for(request, now) for request in waiting)[1]


def _why_none(pool: Pool) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in pool.keys.unusable().items())
    return reasons or "every key is disabled"
