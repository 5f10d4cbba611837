"""What the asking for keys, and their giving back, means for the run."""

from dataclasses import dataclass

from agentos.core import events
from agentos.core.backoff import Jitter, backoff
from agentos.core.commands import GrantLease
from agentos.core.credentials import Credential
from agentos.core.pool import Lease, Pool, Want
from agentos.core.refusals import Refusal, RefusalKind

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Standstill:
    """Why no key can serve this run; `exit_code` is what it ends with."""

    exit_code: int
    reason: str
    detail: str


class Leasing:
    """Owns the pool; remembers which calls failed how often, and which episode is on."""

    def __init__(self, pool: Pool, jitter: Jitter, max_wait: float) -> None:
        self.pool = pool
        self._jitter = jitter
        self._max_wait = max_wait
        self._troubles: dict[tuple[str, str], int] = {}
        self._low = False
        self._exhausted_since: float | None = None
        self._limited_since: float | None = None
        self.refusals = 0

    # Events.

    def wanted(self, event: events.LeaseWanted, now: float) -> None:
        failures = self._troubles.get((event.item, event.call), 0)
        wait = backoff(failures, self._jitter) if failures else 0.0
        self.pool.ask(Want(event.item, event.call, event.providers, now, now + wait))

    def returned(self, event: events.LeaseReturned, now: float) -> list[events.News]:
        lease = self.pool.give_back(event.lease)
        name = self.pool.known_as(lease.credential) if lease else None
        if lease is None or name is None:
            return []
        if event.refusal is None:
            return self._served(lease, name, now)
        return self._refused(lease, name, event.refusal, now)

    def gone(self, holder: str) -> None:
        self.pool.forget(holder)
        self._troubles = {key: n for key, n in self._troubles.items() if key[0] != holder}

    def replaced(self, credentials: list[Credential]) -> list[events.News]:
        added, removed = self.pool.replace(credentials)
        return [events.KeysChanged(added, removed)] if added or removed else []

    def _served(self, lease: Lease, name: str, now: float) -> list[events.News]:
        news: list[events.News] = []
        self._troubles.pop((lease.want.holder, lease.want.call), None)
        if (lasted := self.pool.weather(lease.credential.provider).answered(now)) is not None:
            news.append(events.StormEnded(lease.credential.provider, lasted))
        if self.pool.rest(name).served(lease.granted_at):
            news.append(events.KeyRecovered(name))
        return news

    def _refused(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        rest = self.pool.rest(name)
        match refusal.kind:
            case RefusalKind.RATE_LIMITED:
                self.refusals += 1
                return [
                    events.KeyLimited(
                        name,
                        rest.limit(now, refusal.seconds, refusal.reason),
                        refusal.reason,
                    )
                ]
            case RefusalKind.DAY_EXHAUSTED:
                self.refusals += 1
                ends = rest.spend(now, refusal.seconds, refusal.day_seconds or DAY, refusal.reason)
                return [events.KeySpent(name, ends, refusal.reason)]
            case RefusalKind.KEY_REJECTED:
                self.pool.quarantine(name, refusal.reason)
                return [events.KeyQuarantined(name, refusal.reason)]
            case RefusalKind.TROUBLE:
                return self._trouble(lease, refusal, now)

    def _trouble(self, lease: Lease, refusal: Refusal, now: float) -> list[events.News]:
        call = (lease.want.holder, lease.want.call)
        self._troubles[call] = self._troubles.get(call, 0) + 1
        provider = lease.credential.provider
        weather = self.pool.weather(provider)
        if weather.failed(now, self._jitter):
            return [events.StormBegan(provider, refusal.reason, weather.open_until - now)]
        return []

    # Decisions.

    def grants(self, now: float) -> list[Lease]:
        return self.pool.grant(now)

    def episodes(self, now: float) -> list[events.News]:
        """What has changed for everybody since the last look: low, exhausted, limited, and back."""
        waiting, slots = self.pool.waiting(now), self.pool.usable_slots(now)
        return [
            *self._lowness(slots),
            *self._exhaustion(len(waiting), slots, now),
            *self._limitation(bool(waiting), slots, now),
        ]

    def blocks_starts(self) -> bool:
        return (
            self._exhausted_since is not None or self._limited_since is not None or bool(self.pool.storms())
        )

    def low(self, now: float) -> bool:
        return self.pool.usable_slots(now) < 2

    def standstill(self, now: float) -> Standstill | None:
        if not self.pool.living():
            return Standstill(4, "no usable key", _why_none(self.pool))
        for provider, since in self.pool.storms():
            if now - since > self._max_wait:
                return Standstill(
                    75,
                    "provider failing",
                    f"{provider} has failed for longer than --max-wait",
                )
        earliest = self.pool.earliest(now) if self._limited_since is not None else None
        if earliest and earliest[0] - now > self._max_wait:
            return Standstill(75, "quota", f"no key comes back within --max-wait; the first is {earliest[1]}")
        return None

    def wake_at(self, now: float) -> float | None:
        ends = [since + self._max_wait + 0.001 for _, since in self.pool.storms()]
        moments = [end for end in ends if end > now]
        if (at := self.pool.wake_at(now)) is not None:
            moments.append(at)
        return min(moments, default=None)

    def more_keys_at(self, now: float) -> float | None:
        """When, by waiting alone, there are keys for more workers."""
        return self.pool.more_usable_at(now)

    def _lowness(self, slots: int) -> list[events.News]:
        was, self._low = self._low, slots < 2
        return [events.PoolLow(slots)] if self._low and not was and slots == 1 else []

    def _exhaustion(self, waiting: int, slots: int, now: float) -> list[events.News]:
        stormy = bool(self.pool.storms())
        if self._exhausted_since is None and waiting and slots and not stormy:
            self._exhausted_since = now
            return [events.PoolExhausted(waiting, slots)]
        if self._exhausted_since is not None and not waiting:
            since, self._exhausted_since = self._exhausted_since, None
            return [events.PoolRestored(now - since)]
        return []

    def _limitation(self, waiting: bool, slots: int, now: float) -> list[events.News]:
        earliest = self.pool.earliest(now)
        if self._limited_since is None and waiting and not slots and earliest:
            self._limited_since = now
            return [events.AllKeysLimited(earliest[1], earliest[0] - now)]
        if self._limited_since is not None and (slots or not waiting):
            since, self._limited_since = self._limited_since, None
            return [events.KeysBack(now - since)]
        return []


def granted(lease: Lease) -> GrantLease:
    """The order that carries the key to its holder."""
    credential = lease.credential
    return GrantLease(
        item=lease.want.holder,
        call=lease.want.call,
        lease=lease.id,
        key=credential.name,
        provider=credential.provider,
        secret=credential.secret,
        base_url=credential.base_url,
        model=credential.model,
    )


def _why_none(pool: Pool) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in pool.quarantined().items())
    return reasons or "every key is disabled"
