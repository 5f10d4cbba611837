"""Lease manager: grants and takes back leases, and turns answers and refusals into what the pool knows."""

from agentos.core.backoff import Jitter, backoff
from agentos.core.constants import DAY
from agentos.core.protocol import events
from agentos.core.protocol.peer_notes import (
    BucketLimitsLearned,
    CallEnded,
    CallStarted,
    CooldownCleared,
    CooldownStarted,
    KeyRejected,
    Note,
    ProviderFailed,
    ProviderRecovered,
)
from agentos.core.quota.buckets import Bucket
from agentos.core.quota.budget import Budget
from agentos.core.quota.credentials import Credential
from agentos.core.quota.keys import diff_credentials
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import CallCost, Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind, clamp_hint

PEER_POLL_INTERVAL = 0.02  # seconds
DEFAULT_OUTPUT_TOKENS = 1500  # of a call, until a run has seen what its models write
OUTPUT_SMOOTHING = 0.3  # weight of the newest answer in the average
SELF = ""  # this run in its own notes; the peer log puts its name there


class LeaseManager:
    """Lifecycle of leases, from the request to what its answer or refusal teaches.

    It owns the pool and the budget. `request` queues a call (with backoff if it failed before), `grants`
    returns the leases that can be given now, `release` takes one back and updates the rate limiter, the
    cooldown, the circuit breaker or the quarantine behind it. `drop_holder` does the same for a worker that
    died, so no lease is ever lost.

    Everything that other runs on this host must know is collected as notes; `drain_notes` hands them over.
    Methods that change what a person should know return events. Use it through `with_shared_lock`: without
    the lock it grants nothing, because another run may be granting the same keys.
    """

    def __init__(self, pool: Pool, jitter: Jitter, budget: Budget) -> None:
        self.pool = pool
        self.budget = budget
        self.holds_shared_lock = True
        self._jitter = jitter
        self._failures: dict[tuple[str, str], int] = {}
        """Consecutive provider errors by holder and call."""
        self._notes: list[Note] = []
        self._published: dict[tuple[str, str], BucketLimitsLearned] = {}
        self._average_output: dict[tuple[str, ...], float] = {}
        self._open_breakers: dict[str, float] = {}

    def request(self, event: events.LeaseRequested, now: float) -> None:
        failures = self._failures.get((event.item, event.call), 0)
        delay = backoff(failures, self._jitter) if failures else 0.0
        expected_output = round(self._average_output.get(event.models, DEFAULT_OUTPUT_TOKENS))
        self.pool.request(
            LeaseRequest(
                holder=event.item,
                call=event.call,
                providers=event.providers,
                requested_at=now,
                not_before=now + delay,
                models=event.models,
                cost=CallCost(event.input_tokens, event.output_tokens or expected_output),
                calls_done=event.calls_done,
            )
        )

    def grants(self, now: float) -> list[Lease]:
        """Grant what can be granted now; call this after every change and at `wake_at`."""
        if not self.holds_shared_lock:
            return []
        self.budget.refused = False
        granted = self.pool.grant(now, self.budget.can_afford)
        for lease in granted:
            self.budget.reserve(lease.id, lease.model, lease.request.cost)
            self._notes.append(self._call_sent(lease))
            self._note_estimate(lease)
        return granted

    def release(self, event: events.LeaseReleased, now: float) -> list[events.News]:
        lease = self.pool.release(event.lease)
        if lease is None:
            return []
        name = self.pool.keys.current_name(lease.credential)
        used = CallCost(event.usage.input_tokens, event.usage.output_tokens)
        refused = event.refusal is not None and event.refusal.kind is not RefusalKind.PROVIDER_ERROR
        self._notes.append(CallEnded(SELF, lease.id, used, refused))
        news = self._settle_cost(lease, event)
        if name is None:
            return news
        news += self._add_limits(lease, name, event.limits)
        if event.refusal is None:
            news += self._on_answer(lease, name, used, now)
        else:
            news += self._on_refusal(lease, name, event.refusal, now)
        return news + self._check_day(lease, name, now)

    def drop_holder(self, holder: str) -> None:
        self._notes += [CallEnded(SELF, lease.id) for lease in self.pool.drop_holder(holder)]
        self._failures = {call: count for call, count in self._failures.items() if call[0] != holder}

    def replace_credentials(self, credentials: list[Credential]) -> list[events.News]:
        change = diff_credentials([key.credential for key in self.pool.keys], credentials)
        self.pool.replace(credentials)
        return [change] if change else []

    def breaker_news(self, now: float) -> list[events.News]:
        """Report circuit breakers that opened or closed since the last call, in this run or another."""
        before, current = self._open_breakers, dict(self.pool.open_breakers())
        if current.keys() == before.keys():
            return []
        self._open_breakers = current
        opened = [self._breaker_opened(provider, now) for provider in current if provider not in before]
        closed = [
            events.BreakerClosed(provider, now - since)
            for provider, since in before.items()
            if provider not in current
        ]
        for event in closed:
            self.pool.skip_backoff(event.provider, now)
        return [*opened, *closed]

    def _breaker_opened(self, provider: str, now: float) -> events.BreakerOpened:
        breaker = self.pool.breaker(provider)
        return events.BreakerOpened(provider, breaker.reason, max(0.0, breaker.open_until - now))

    def drain_notes(self) -> list[Note]:
        """Return the notes for the other runs, and forget them."""
        notes, self._notes = self._notes, []
        return notes

    def wake_at(self, now: float) -> float | None:
        """When to call `grants` again if nothing else happens; keys that other runs hold are polled."""
        at = self.pool.wake_at(now)
        if not self.holds_shared_lock and self.pool.waiting(now):
            return now + PEER_POLL_INTERVAL
        if self.pool.peer_runs() and self.pool.waiting(now):
            return now + PEER_POLL_INTERVAL if at is None else min(at, now + PEER_POLL_INTERVAL)
        return at

    # Answers.

    def _settle_cost(self, lease: Lease, event: events.LeaseReleased) -> list[events.News]:
        model = event.model or lease.model
        cost = self.budget.settle(lease.id, lease.model or model, event.usage)
        if not event.usage.calls:
            return []
        return [events.CallCompleted(event.item, lease.credential.name, model, event.usage, cost)]

    def _on_answer(self, lease: Lease, name: str, used: CallCost, now: float) -> list[events.News]:
        bucket, models = self.pool.bucket(name, lease.model), lease.request.models
        bucket.limiter.settle(lease.reservation, used)
        self.pool.mark_proven(name)
        average = self._average_output.get(models, used.output_tokens)
        self._average_output[models] = average + (used.output_tokens - average) * OUTPUT_SMOOTHING
        self._failures.pop((lease.request.holder, lease.request.call), None)
        breaker = self.pool.breaker(lease.credential.provider)
        if breaker.failures:
            self._notes.append(ProviderRecovered(SELF, lease.credential.address))
        breaker.close()
        news = self.breaker_news(now)
        cooldown = bucket.cooldown
        ends_cooldown = cooldown.refused_at <= lease.granted_at and (
            cooldown.consecutive_refusals or cooldown.exhausted_until
        )
        if cooldown.record_success(lease.granted_at):
            news.append(events.KeyRecovered(name))
        if ends_cooldown:
            self._notes.append(CooldownCleared(SELF, lease.credential.quota, lease.model))
        return news

    def _check_day(self, lease: Lease, name: str, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        if not bucket.check_day(now):
            return []
        self._note_cooldown(lease, bucket)
        cooldown = bucket.cooldown
        return [
            events.KeyExhausted(
                name, cooldown.exhausted_until - now, cooldown.reason, self._is_only_key(name)
            )
        ]

    def _is_only_key(self, name: str) -> bool:
        return self.pool.keys.active() == [name]

    # Refusals.

    def _on_refusal(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        match refusal.kind:
            case RefusalKind.RATE_LIMITED:
                self.pool.mark_proven(name)
                news = self._learn_from_refusal(lease, name, refusal, now)
                hint = refusal.seconds
                if hint is not None:
                    hint += bucket.limiter.hint_shortfall()
                seconds = bucket.cooldown.start(now, hint, refusal.reason)
                self._note_cooldown(lease, bucket)
                return [*news, events.KeyLimited(name, seconds, refusal.reason, self._is_only_key(name))]
            case RefusalKind.DAY_EXHAUSTED:
                seconds = bucket.cooldown.start_exhausted(now, refusal.day_seconds or DAY, refusal.reason)
                self._note_cooldown(lease, bucket)
                return [events.KeyExhausted(name, seconds, refusal.reason, self._is_only_key(name))]
            case RefusalKind.KEY_REJECTED:
                self.pool.quarantine(name, refusal.reason)
                self._notes.append(KeyRejected(SELF, lease.credential.fingerprint, refusal.reason, now))
                return [events.KeyQuarantined(name, refusal.reason)]
            case RefusalKind.PROVIDER_ERROR:
                bucket.limiter.drop(lease.reservation)
                return self._on_provider_error(lease, refusal, now)

    def _learn_from_refusal(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        """Take over the limits that a refusal states; measure one that states none, or one that we kept."""
        limiter = self.pool.bucket(name, lease.model).limiter
        is_new = limiter.cancel(lease.reservation, now)
        news = self._add_limits(lease, name, refusal.limits)
        opens_at = None if refusal.seconds is None else now + clamp_hint(refusal.seconds)
        if limiter.infer_counting(lease.reservation, opens_at) or news:
            self._note_estimate(lease)
            return news
        if refusal.limits and all(limit.dimension is not Dimension.REQUESTS for limit in refusal.limits):
            return news
        latency = now - lease.granted_at
        hint = latency + clamp_hint(refusal.seconds)
        if is_new:
            limiter.record_refusal(lease.reservation, hint, latency, hinted=refusal.seconds is not None)
            self._note_estimate(lease)
        else:
            limiter.record_repeated_refusal(lease.reservation, hint)
        return news

    def _add_limits(self, lease: Lease, name: str, limits: tuple[LimitSeen, ...]) -> list[events.News]:
        limiter = self.pool.bucket(name, lease.model).limiter
        new = tuple(limit for limit in limits if limiter.add_limit(limit.dimension, limit.rate))
        if new:
            self._notes.append(BucketLimitsLearned(SELF, lease.credential.quota, lease.model, new))
        return [
            events.LimitLearned(name, lease.model, limit.dimension, limit.amount, limit.seconds)
            for limit in new
        ]

    def _on_provider_error(self, lease: Lease, refusal: Refusal, now: float) -> list[events.News]:
        call = (lease.request.holder, lease.request.call)
        self._failures[call] = self._failures.get(call, 0) + 1
        breaker = self.pool.breaker(lease.credential.provider)
        breaker.record_failure(lease.granted_at, now, self._jitter, refusal.reason)
        address, until = lease.credential.address, breaker.open_until
        self._notes.append(ProviderFailed(SELF, address, breaker.failures, until, refusal.reason, now))
        return self.breaker_news(now)

    # Notes for the other runs.

    def _call_sent(self, lease: Lease) -> CallStarted:
        breaker = self.pool.breaker(lease.credential.provider)
        return CallStarted(
            run=SELF,
            lease=lease.id,
            key=lease.credential.fingerprint,
            bucket=lease.credential.quota,
            model=lease.model,
            at=lease.granted_at,
            cost=lease.request.cost,
            probed_provider=lease.credential.address if breaker.probe == lease.id else "",
        )

    def _note_estimate(self, lease: Lease) -> None:
        """Publish an estimated rate, or a way of counting, if it changed since it was last published."""
        bucket_key, limiter = (lease.credential.quota, lease.model), self.pool.bucket_of(lease).limiter
        note = BucketLimitsLearned(
            SELF,
            *bucket_key,
            (),
            limiter.per_second(),
            limiter.window(),
            limiter.token_rate(),
            limiter.profile.counting,
            limiter.profile.window_start,
        )
        if note != self._published.get(bucket_key, BucketLimitsLearned(SELF, *bucket_key)):
            self._published[bucket_key] = note
            self._notes.append(note)

    def _note_cooldown(self, lease: Lease, bucket: Bucket) -> None:
        cooldown, quota = bucket.cooldown, lease.credential.quota
        ends = (cooldown.until, cooldown.exhausted_until)
        self._notes.append(
            CooldownStarted(SELF, quota, lease.model, *ends, cooldown.reason, cooldown.refused_at)
        )
