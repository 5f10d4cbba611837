"""Leases keys to the calls of the gateway, in agreement with the other processes that share the pool."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentos.core.protocol import events
from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.lease_manager import LeaseManager
from agentos.core.quota.peer_state import with_shared_lock
from agentos.gateway.dialects.base import GatewayError
from agentos.gateway.request_parser import ProxyRequest
from agentos.outputs.key_rows import KeyRow, key_row

RETRY_AFTER_BUSY = 1.0  # seconds
QUIET_WAIT = 2.0  # seconds; only longer waits are reported
WAIT_REASON_TTL = 0.5  # seconds for which the reason of a wait is cached
UNMETERED_CONCURRENCY = 32  # calls per key
MANY = 256  # keys and waiting calls, beyond which checking all of them for each decision takes too long
CHECK_INTERVAL = 0.25  # seconds between two checks of that many


class NoKey(Exception):
    """No key can be leased before the call's deadline; `retry_after` is the number of seconds to wait, if known."""

    def __init__(self, error: GatewayError, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.retry_after = retry_after


@dataclass(slots=True)
class _PendingLease:
    granted: asyncio.Future[Lease]
    deadline: float


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why no key can serve a kind of request, and until when; infinite if waiting does not help."""

    error: NoKey
    until: float = float("inf")


class LeaseBroker:
    """Waits for leases on behalf of calls, on one event loop.

    Every `acquire` ends with a lease, with NoKey, or with the cancellation of its caller; a cancelled caller
    leaves no lease behind.
    """

    def __init__(
        self,
        lease_manager: LeaseManager,
        peers: PeerLog,
        clock: Callable[[], float],
        publish: Callable[[events.SchedulerEvent], None],
    ) -> None:
        self._lease_manager = lease_manager
        self._peers = peers
        self._clock = clock
        self._publish = publish
        self._waiting: dict[str, _PendingLease] = {}
        self._wakeup: asyncio.TimerHandle | None = None
        self._reasons: dict[tuple[str, str], tuple[float, str]] = {}
        self._next_check_at = float("-inf")

    async def acquire(
        self,
        wanted: events.LeaseRequested,
        deadline: float,
        on_wait: Callable[[str], None],
        since: float | None = None,
        excluded: tuple[str, ...] = (),
    ) -> Lease:
        """Lease a key for one call; `on_wait` gets the reason if that takes longer than QUIET_WAIT.

        `since` is when the call first asked, if it is a retry, and decides its place in the queue. `excluded` are the
        keys that have refused it.
        """
        pending = _PendingLease(asyncio.get_running_loop().create_future(), deadline)
        self._waiting[wanted.item] = pending
        self._update(lambda now: self._lease_manager.request(wanted, now, since, excluded))
        try:
            return await self._wait_for_grant(wanted, pending, on_wait)
        except BaseException:
            if pending.granted.done():
                # Mark a NoKey that nobody awaits any more as retrieved, so that asyncio does not log it.
                pending.granted.exception()
            self.forget(wanted.item)
            raise

    async def _wait_for_grant(
        self, wanted: events.LeaseRequested, pending: _PendingLease, on_wait: Callable[[str], None]
    ) -> Lease:
        provider, model = wanted.providers[0], wanted.models[0]
        if not pending.granted.done():
            await asyncio.wait([pending.granted], timeout=min(QUIET_WAIT, self._time_left(pending)))
        if not pending.granted.done():
            is_backing_off = self._lease_manager.pool.is_backing_off(wanted.item, self._clock())
            on_wait(
                f"{f'{provider} {model}'.rstrip()} failed; the call is repeated after a pause"
                if is_backing_off and not self._breaker_open(provider, model)
                else self._wait_reason(provider, model)
            )
            await asyncio.wait([pending.granted], timeout=self._time_left(pending))
        if not pending.granted.done():
            error = GatewayError.FAILING if self._breaker_open(provider, model) else GatewayError.LIMITED
            raise NoKey(error, self._wait_reason(provider, model), RETRY_AFTER_BUSY)
        return pending.granted.result()

    def release(self, event: events.LeaseReleased) -> list[events.SchedulerEvent]:
        return self._update_and_publish(lambda now: self._lease_manager.release(event, now))

    def forget(self, holder: str) -> None:
        """Drop the pending request or the lease of a caller that is gone."""
        self._waiting.pop(holder, None)
        self._update(lambda now: self._lease_manager.drop_holder(holder))

    def replace_credentials(self, credentials: list[Credential]) -> None:
        self._update_and_publish(lambda now: self._lease_manager.replace_credentials(credentials))

    def has_active_key(self) -> bool:
        """Whether any key is enabled and not rejected, even if it is at its limit."""
        return bool(self._lease_manager.pool.keys.active())

    def key_rows(self) -> list[KeyRow]:
        """The current state of every key."""
        pool, now = self._lease_manager.pool, self._clock()
        return [key_row(pool, key.credential, now) for key in pool.keys]

    def close(self) -> None:
        if self._wakeup:
            self._wakeup.cancel()

    def _update_and_publish(
        self, change: Callable[[float], list[events.SchedulerEvent]]
    ) -> list[events.SchedulerEvent]:
        found: list[events.SchedulerEvent] = []
        self._update(lambda now: found.extend(change(now)))
        for event in found:
            self._publish(event)
        return found

    def _update(self, change: Callable[[float], None]) -> None:
        """Apply a change to the pool, then grant every lease that has become possible."""
        # The second result says whether our notes could be written. The gateway serves its callers in any case.
        leases, _ = with_shared_lock(self._lease_manager, self._peers, lambda: self._grant(change))
        for event in self._lease_manager.breaker_events(self._clock()):
            self._publish(event)
        for lease in leases:
            pending = self._waiting.pop(lease.request.holder, None)
            if pending and not pending.granted.done():
                pending.granted.set_result(lease)
        self._fail_unservable()
        self._schedule_wakeup()

    def _grant(self, change: Callable[[float], None]) -> list[Lease]:
        now = self._clock()
        change(now)
        return self._lease_manager.grants(now)

    def _fail_unservable(self) -> None:
        """Fail the waiting requests that certainly cannot be served before their deadline.

        Finding a problem means checking every key and every request, so if these are many, that is not repeated for each
        decision.
        """
        now, pool = self._clock(), self._lease_manager.pool
        if not self._waiting or now < self._next_check_at:
            return
        # Requests of one kind share the result, so a whole queue is scanned only if its kind has a problem.
        problems = {
            first.kind: found for first in pool.first_waiting(now) if (found := self._problem(first, now))
        }
        if problems and len(pool.keys) + len(self._waiting) > MANY:
            self._next_check_at = now + CHECK_INTERVAL
        for request in pool.waiting(now) if problems else ():
            problem = problems.get(request.kind)
            pending = self._waiting.get(request.holder)
            if problem and pending and not pending.granted.done() and problem.until > pending.deadline:
                pending.granted.set_exception(problem.error)
                pool.drop_holder(request.holder)

    def _problem(self, request: LeaseRequest, now: float) -> "_Problem | None":
        """Why requests of this kind cannot be served at once by any key."""
        pool, budget, provider = self._lease_manager.pool, self._lease_manager.budget, request.providers[0]
        if budget.refused and not pool.held():
            message = f"the next call would exceed the budget of ${budget.budget:.2f}"
            return _Problem(NoKey(GatewayError.UNPAID, message))
        back = pool.recovery_for(request, now)
        if back is None:
            return _Problem(NoKey(GatewayError.NO_KEY, self._no_key_text(request)))
        if back.at <= now:
            return None
        seconds = back.at - now
        message = (
            f"all {provider} keys are rate limited; {back.name} is the first available, in {seconds:.0f} s"
        )
        return _Problem(NoKey(GatewayError.LIMITED, message, seconds), back.at)

    def _no_key_text(self, request: LeaseRequest) -> str:
        """Name each key with what the provider said about it, and say what to do unless only the model is the problem."""
        pool, provider = self._lease_manager.pool, request.providers[0]
        names: dict[str, list[str]] = {}
        for name, reason in pool.denials(request).items():
            names.setdefault(reason, []).append(name)
        reasons = "; ".join(f"{', '.join(sorted(who))}: {reason}" for reason, who in names.items())
        found = f" ({reasons})" if reasons else ""
        if any(key.active and key.credential.provider == provider for key in pool.keys):
            return f"no {provider} key may use {request.models[0] or 'this'}{found}"
        return f'no usable {provider} key{found}; add one with "agentos keys add"'

    def _wait_reason(self, provider: str, model: str) -> str:
        """Why calls to a model wait. Cached for all waiting calls, because finding out scans every key."""
        now = self._clock()
        found = self._reasons.get((provider, model))
        if found is None or now >= found[0] + WAIT_REASON_TTL:
            found = self._reasons[provider, model] = (now, self._find_wait_reason(provider, model, now))
        return found[1]

    def _find_wait_reason(self, provider: str, model: str, now: float) -> str:
        pool = self._lease_manager.pool
        if self._breaker_open(provider, model):
            return f"{f'{provider} {model}'.rstrip()} is failing on every key"
        if not pool.keys.usable_slots(now, (provider,)) and (
            earliest := pool.keys.next_allowed(now, (provider,))
        ):
            return (
                f"all {provider} keys are rate limited; {earliest[1]} is the first available, "
                f"in {earliest[0] - now:.0f} s"
            )
        return f"all {provider} keys are in use or at their rate limit"

    def _breaker_open(self, provider: str, model: str) -> bool:
        return self._lease_manager.pool.breaker(provider, model).opened_at is not None

    def _time_left(self, pending: _PendingLease) -> float:
        return max(0.0, pending.deadline - self._clock())

    def _schedule_wakeup(self) -> None:
        """Check the pool again as soon as time alone can make a lease possible."""
        if self._wakeup:
            self._wakeup.cancel()
        now = self._clock()
        due = self._lease_manager.wake_at(now) if self._waiting else None
        if self._waiting and now < self._next_check_at:
            due = self._next_check_at if due is None else min(due, self._next_check_at)
        loop = asyncio.get_running_loop()
        self._wakeup = (
            None if due is None else loop.call_later(max(0.0, due - now), self._update, lambda now: None)
        )


@dataclass(frozen=True, slots=True)
class LeaseBrokers:
    """The broker for model calls, and one for calls that use no quota, such as counting tokens.

    The second ignores rate limits and concurrency, so that such calls never wait behind model calls.
    """

    metered: LeaseBroker
    unmetered: LeaseBroker

    def for_request(self, request: ProxyRequest) -> LeaseBroker:
        return self.unmetered if request.is_unmetered else self.metered

    def replace_credentials(self, credentials: list[Credential]) -> None:
        self.metered.replace_credentials(credentials)
        self.unmetered.replace_credentials(without_limits(credentials))

    def close(self) -> None:
        self.metered.close()
        self.unmetered.close()


def without_limits(credentials: list[Credential]) -> list[Credential]:
    return [replace(credential, concurrency=UNMETERED_CONCURRENCY, rates=()) for credential in credentials]
