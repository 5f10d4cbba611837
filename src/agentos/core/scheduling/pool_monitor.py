"""When the keys, all together, hold the run up: low, exhausted, limited, or at an end."""

import math
from dataclasses import dataclass

from agentos.core.protocol import events
from agentos.core.quota.pool import Pool

# A shorter wait is how pacing works; nobody needs to hear of it.
WORTH_SAYING = 5.0


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why no key can serve this run; `exit_code` is what it ends with."""

    exit_code: int
    reason: str
    detail: str
    seconds: float | None = None


class PoolMonitor:
    """Each is told once, when it begins and when it is over."""

    def __init__(self, pool: Pool, max_wait: float) -> None:
        self._pool = pool
        self._max_wait = max_wait
        self._low = False
        self._exhausted_since: float | None = None
        self._limited_since: float | None = None
        self._paced_until = 0.0

    def update(self, now: float) -> list[events.News]:
        """What has changed for everybody since the last look."""
        waiting, slots = self._pool.waiting(now), self._pool.keys.usable_slots(now)
        return [
            *self._check_low(slots),
            *self._check_exhausted(len(waiting), slots, now),
            *self._check_all_limited(bool(waiting), slots, now),
            *self._check_paced(now),
        ]

    def hold_starts(self, now: float) -> bool:
        """Whether no further item is to start while others are at work."""
        paused = self._exhausted_since is not None or self._limited_since is not None
        stormy = bool(self._pool.open_breakers()) and not self._sound()
        return paused or stormy or self._pool.keys.usable_slots(now) < 2

    def stop_reason(self, now: float) -> StopReason | None:
        if not self._pool.keys.active():
            return StopReason(4, "no usable key", _why_none(self._pool))
        for provider, since in self._pool.open_breakers():
            if now >= self._too_long(since) and self._is_hopeless(now):
                return StopReason(75, "provider failing", f"{provider} has failed for longer than --max-wait")
        for want in self._pool.waiting(now):
            back = self._pool.recovery_for(want, now)
            if back is None:
                return StopReason(4, "no usable key", f"none for {want.holder}; {_why_none(self._pool)}")
            if back[0] - now > self._max_wait:
                detail = f"no key comes back within --max-wait; the first is {back[1]}"
                return StopReason(75, "quota", detail, back[0] - now)
        if (paced := self._paced(now)) and paced[0] - now > self._max_wait:
            detail = f"no key may be used within --max-wait; the first is {paced[1]}"
            return StopReason(75, "quota", detail, paced[0] - now)
        return None

    def _sound(self) -> set[str]:
        """The providers that have a key and no storm."""
        return set(self._pool.keys.providers()) - {provider for provider, _ in self._pool.open_breakers()}

    def _is_hopeless(self, now: float) -> bool:
        """Whether the storms leave nobody to serve, or somebody whom no other provider may serve."""
        sound = self._sound()
        return not sound or any(sound.isdisjoint(want.providers) for want in self._pool.waiting(now))

    def wake_at(self, now: float) -> float | None:
        """When a storm has lasted too long, or keys for more workers may be back."""
        moments = [at for _, since in self._pool.open_breakers() if (at := self._too_long(since)) > now]
        if earliest := self._pool.keys.next_allowed(now):
            moments.append(earliest[0])
        if recovery := self._pool.keys.next_recovery(now):
            moments.append(recovery.at)
        return min(moments, default=None)

    def _too_long(self, since: float) -> float:
        """The first moment after --max-wait: the same number for who waits for it and for who asks whether it is over."""
        return math.nextafter(since + self._max_wait, math.inf)

    def _check_low(self, slots: int) -> list[events.News]:
        was, self._low = self._low, slots < 2
        return [events.PoolLow(slots)] if self._low and not was and slots == 1 else []

    def _check_exhausted(self, waiting: int, slots: int, now: float) -> list[events.News]:
        begins = self._exhausted_since is None and waiting and slots and not self._pool.open_breakers()
        if begins and self._pool.keys.all_held(now):
            self._exhausted_since = now
            return [events.PoolExhausted(waiting, slots)]
        if self._exhausted_since is not None and not waiting:
            since, self._exhausted_since = self._exhausted_since, None
            return [events.PoolRestored(now - since)]
        return []

    def _check_all_limited(self, waiting: bool, slots: int, now: float) -> list[events.News]:
        begins = self._limited_since is None and waiting and not slots
        if begins and (earliest := self._pool.keys.next_allowed(now)):
            self._limited_since = now
            at, name = self._pool.keys.next_recovery(now) or earliest
            return [events.AllKeysLimited(name, at - now)]
        if self._limited_since is not None and (slots or not waiting):
            since, self._limited_since = self._limited_since, None
            return [events.KeysAvailable(now - since)]
        return []

    def _check_paced(self, now: float) -> list[events.News]:
        if self._pool.held():
            self._paced_until = 0.0
        if now < self._paced_until or not (paced := self._paced(now)) or paced[0] - now < WORTH_SAYING:
            return []
        self._paced_until = paced[0]
        return [events.CallsThrottled(paced[1], paced[0] - now)]

    def _paced(self, now: float) -> tuple[float, str] | None:
        """When the first of those who wait is served, and which key then, if only limits hold all of them up."""
        if self._pool.held() or self._pool.open_breakers() or self._limited_since is not None:
            return None
        due, waiting = self._pool.wake_at(now), self._pool.waiting(now)
        if due is None or due - now < WORTH_SAYING or not waiting:
            return None
        return due, min(self._pool.next_allowed_for(want, now) for want in waiting)[1]


def _why_none(pool: Pool) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in pool.keys.quarantined().items())
    return reasons or "every key is disabled"
