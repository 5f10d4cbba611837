"""Lease manager: grants and takes back leases, and updates the pool from answers and refusals."""

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
    QuotaSharingFound,
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
DEFAULT_OUTPUT_TOKENS = 1500  # of a call, until the run has measured its own average
OUTPUT_SMOOTHING = 0.3  # weight of the newest answer in the average
PROVIDER_FAILURES = (RefusalKind.PROVIDER_ERROR, RefusalKind.CUT)
SELF = ""  # stands for this run in its own notes; the peer log fills in its name


class LeaseManager:
    """Lifecycle of leases, from the request to what is learned from the answer or refusal.

    It owns the pool and the budget. `request` queues a call (with backoff if it failed before), `grants`
    returns the leases that can be given now, `release` takes one back and updates the rate limiter, the
    cooldown, the circuit breaker or the quarantine behind it. `drop_holder` does the same for a worker that
    died, so no lease is ever lost.

    Everything that other runs on this host must know is collected as notes; `drain_notes` hands them over.
    Methods return events for whatever should be reported. Use it through `with_shared_lock`: without the lock it
    grants nothing, because another run may be granting the same keys.
    """

    def __init__(self, pool: Pool, jitter: Jitter, budget: Budget) -> None:
        self.pool = pool
        self.budget = budget
        self.holds_shared_lock = True
        self._jitter = jitter
        self._failures: dict[tuple[str, str], int] = {}
        """Consecutive provider errors by holder and call."""
        self._cuts: dict[tuple[str, str], int] = {}
        """Cut answers by holder and call."""
        self._answers: dict[str, int] = {}
        """Answers by the provider's address."""
        self._not_before: dict[tuple[str, str], float] = {}
        """When to ask a shared gateway again, by holder and call."""
        self._notes: list[Note] = []
        self._published: dict[tuple[str, str], BucketLimitsLearned] = {}
        self._average_output: dict[tuple[str, ...], float] = {}
        self._open_breakers: dict[tuple[str, str], float] = {}

    def request(
        self,
        event: events.LeaseRequested,
        now: float,
        since: float | None = None,
        excluded: tuple[str, ...] = (),
    ) -> None:
        """Queue a call; `since` is when it began to wait, if that was earlier, `excluded` the keys that refused it."""
        failures = self._failures.get((event.item, event.call), 0)
        delay = backoff(failures, self._jitter) if failures else 0.0
        delay = max(delay, self._not_before.pop((event.item, event.call), now) - now)
        expected_output = round(self._average_output.get(event.models, DEFAULT_OUTPUT_TOKENS))
        self.pool.request(
            LeaseRequest(
                holder=event.item,
                call=event.call,
                providers=event.providers,
                requested_at=now if since is None else since,
                not_before=now + delay,
                models=event.models,
                cost=CallCost(event.input_tokens, event.output_tokens or expected_output),
                calls_done=event.calls_done,
                affinity=event.affinity,
                excluded=excluded,
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
            self._note_learned(lease)
        return granted

    def release(self, event: events.LeaseReleased, now: float) -> list[events.SchedulerEvent]:
        lease = self.pool.release(event.lease)
        if lease is None:
            if not event.lease:  # a call of the run's gateway, which has leases of its own
                self.budget.settle("", event.model, event.usage)
            return []
        name = self.pool.keys.current_name(lease.credential)
        used = CallCost(event.usage.input_tokens, event.usage.output_tokens)
        refused = event.refusal is not None and event.refusal.kind not in PROVIDER_FAILURES
        self._notes.append(CallEnded(SELF, lease.id, used, refused))
        published = self._settle_cost(lease, event)
        if name is None:
            self.pool.bucket_of(lease).limiter.drop(lease.reservation, now)
            return published
        published += self._add_limits(lease, name, event.limits)
        if event.refusal is None:
            published += self._on_answer(lease, name, used, now)
        else:
            published += self._on_refusal(lease, name, event.refusal, now)
            if event.refusal.kind is RefusalKind.CUT:
                published.append(self._call_cut(lease, name, event))
        return published + self._check_day(lease, name, now)

    def recover(self, event: events.AnswerRecovered) -> events.CallCompleted:
        """Count a call that a run paid for before it was killed."""
        cost = self.budget.settle("", event.model, event.usage)
        return events.CallCompleted(event.item, event.key, event.model, event.usage, cost)

    def drop_holder(self, holder: str) -> None:
        self._notes += [CallEnded(SELF, lease.id) for lease in self.pool.drop_holder(holder)]
        self._failures = {call: count for call, count in self._failures.items() if call[0] != holder}
        self._cuts = {call: count for call, count in self._cuts.items() if call[0] != holder}
        self._not_before = {call: at for call, at in self._not_before.items() if call[0] != holder}

    def answers_from(self, lease: Lease) -> int:
        """How many calls the lease's provider has answered in this run."""
        return self._answers.get(lease.credential.address, 0)

    def replace_credentials(self, credentials: list[Credential]) -> list[events.SchedulerEvent]:
        change = diff_credentials([key.credential for key in self.pool.keys], credentials)
        self.pool.replace(credentials)
        return [change] if change else []

    def breaker_events(self, now: float) -> list[events.SchedulerEvent]:
        """Report circuit breakers that opened or closed since the last call, in this run or another."""
        before = self._open_breakers
        current = {(found.provider, found.model): found.since for found in self.pool.open_breakers()}
        if current.keys() == before.keys():
            return []
        self._open_breakers = current
        opened = [self._breaker_opened(*found, now) for found in current if found not in before]
        closed = [
            events.BreakerClosed(provider, now - since, model)
            for (provider, model), since in before.items()
            if (provider, model) not in current
        ]
        for event in closed:
            self.pool.skip_backoff(event.provider, now)
        return [*opened, *closed]

    def _breaker_opened(self, provider: str, model: str, now: float) -> events.BreakerOpened:
        breaker = self.pool.breaker(provider, model)
        return events.BreakerOpened(provider, breaker.reason, max(0.0, breaker.open_until - now), model)

    def drain_notes(self) -> list[Note]:
        """Return the notes for the other runs, and forget them."""
        notes, self._notes = self._notes, []
        return notes

    def wake_at(self, now: float) -> float | None:
        """When to call `grants` again if nothing else happens; keys that other runs hold are polled."""
        at = self.pool.wake_at(now)
        if not self.holds_shared_lock and self.pool.any_waiting(now):
            return now + PEER_POLL_INTERVAL
        if self.pool.peer_runs() and self.pool.any_waiting(now):
            return now + PEER_POLL_INTERVAL if at is None else min(at, now + PEER_POLL_INTERVAL)
        return at

    # Answers.

    def _settle_cost(self, lease: Lease, event: events.LeaseReleased) -> list[events.SchedulerEvent]:
        model = event.model or lease.model
        cost = self.budget.settle(lease.id, lease.model or model, event.usage)
        if not event.usage.calls:
            return []
        return [events.CallCompleted(event.item, lease.credential.name, model, event.usage, cost)]

    def _on_answer(self, lease: Lease, name: str, used: CallCost, now: float) -> list[events.SchedulerEvent]:
        bucket, models = self.pool.bucket(name, lease.model), lease.request.models
        bucket.limiter.settle(lease.reservation, used, now)
        self.pool.mark_proven(name)
        average = self._average_output.get(models, used.output_tokens)
        self._average_output[models] = average + (used.output_tokens - average) * OUTPUT_SMOOTHING
        self._failures.pop((lease.request.holder, lease.request.call), None)
        self._cuts.pop((lease.request.holder, lease.request.call), None)
        self._answers[lease.credential.address] = self.answers_from(lease) + 1
        breaker = self.pool.breaker(lease.credential.provider, lease.model)
        if breaker.failures:
            self._notes.append(ProviderRecovered(SELF, lease.credential.address, lease.model))
        breaker.close()
        published = self.breaker_events(now)
        cooldown = bucket.cooldown
        ends_cooldown = cooldown.refused_at <= lease.granted_at and (
            cooldown.consecutive_refusals or cooldown.exhausted_until
        )
        if cooldown.record_success(lease.granted_at):
            published.append(events.KeyRecovered(name))
        if ends_cooldown:
            self._notes.append(CooldownCleared(SELF, lease.credential.quota, lease.model))
        return published

    def _check_day(self, lease: Lease, name: str, now: float) -> list[events.SchedulerEvent]:
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
        return self.pool.keys.is_only_active(name)

    # Refusals.

    def _on_refusal(
        self, lease: Lease, name: str, refusal: Refusal, now: float
    ) -> list[events.SchedulerEvent]:
        bucket = self.pool.bucket(name, lease.model)
        self.pool.drop_kept_key(lease)
        match refusal.kind:
            case RefusalKind.RATE_LIMITED:
                self.pool.mark_proven(name)
                return self._on_rate_limit(lease, name, refusal, now)
            case RefusalKind.DAY_EXHAUSTED:
                bucket.limiter.drop(lease.reservation, now)
                seconds = bucket.cooldown.start_exhausted(now, refusal.day_seconds or DAY, refusal.reason)
                self._note_cooldown(lease, bucket)
                return [events.KeyExhausted(name, seconds, refusal.reason, self._is_only_key(name))]
            case RefusalKind.KEY_REJECTED:
                bucket.limiter.drop(lease.reservation, now)
                self.pool.quarantine(name, refusal.reason)
                self._notes.append(KeyRejected(SELF, lease.credential.fingerprint, refusal.reason, now))
                return [events.KeyQuarantined(name, refusal.reason)]
            case RefusalKind.NO_ACCESS:
                bucket.limiter.drop(lease.reservation, now)
                bucket.cooldown.start_no_access(now, refusal.reason)
                self._note_cooldown(lease, bucket)
                return [events.ModelForbidden(name, lease.model, refusal.reason)]
            case RefusalKind.CALL_DENIED:
                self.pool.mark_proven(name)
                bucket.limiter.drop(lease.reservation, now)
                return []
            case RefusalKind.NOT_YET | RefusalKind.OVER_BUDGET:
                self.pool.mark_proven(name)
                bucket.limiter.drop(lease.reservation, now)
                bucket.limiter.uncount(lease.reservation, now)
                if refusal.kind is RefusalKind.NOT_YET:
                    call = (lease.request.holder, lease.request.call)
                    self._not_before[call] = now + clamp_hint(refusal.seconds)
                return []
            case RefusalKind.PROVIDER_ERROR | RefusalKind.CUT:
                bucket.limiter.drop(lease.reservation, now)
                return self._on_provider_error(lease, refusal, now)

    def _on_rate_limit(
        self, lease: Lease, name: str, refusal: Refusal, now: float
    ) -> list[events.SchedulerEvent]:
        """Adopt the limits that a refusal states, learn from one that states none, and cool down."""
        bucket = self.pool.bucket(name, lease.model)
        limiter = bucket.limiter
        is_new = limiter.cancel(lease.reservation, now)
        published = self._add_limits(lease, name, refusal.limits)
        wait = None if refusal.seconds is None else clamp_hint(refusal.seconds)
        others = refusal.limits and all(limit.dimension is not Dimension.REQUESTS for limit in refusal.limits)
        if not others:
            wait = limiter.record_refusal(lease.reservation, now, wait, is_new=is_new and not published)
            self._note_learned(lease)
        if refusal.seconds is not None:
            published += self._check_sharing(lease, name, refusal.seconds, now)
        if wait is not None:
            wait += limiter.hint_shortfall()
        seconds = bucket.cooldown.start(now, wait, refusal.reason, probing=limiter.probing)
        self._note_cooldown(lease, bucket)
        return [*published, events.KeyLimited(name, seconds, refusal.reason, self._is_only_key(name))]

    def _check_sharing(self, lease: Lease, name: str, hint: float, now: float) -> list[events.SchedulerEvent]:
        """Report two keys whose refusals show that they share a quota."""
        if hint == int(hint):
            return []  # in whole seconds, so probably rounded
        quota, detector = lease.credential.quota, self.pool.shared_quotas
        names = {
            key.credential.quota: key.credential.name
            for key in self.pool.keys
            if key.credential.address == lease.credential.address and key.credential.quota != quota
        }
        others = [(other, self.pool.bucket(its, lease.model).limiter) for other, its in names.items()]
        limiter = self.pool.bucket(name, lease.model).limiter
        new = detector.record_refusal(quota, limiter, now, lease.granted_at + hint, others)
        for other in new:
            refusals = detector.found[frozenset((quota, other))].refusals
            self._notes.append(QuotaSharingFound(SELF, quota, other, now, refusals))
        return [events.QuotaShared(name, names[other]) for other in new]

    def _add_limits(
        self, lease: Lease, name: str, limits: tuple[LimitSeen, ...]
    ) -> list[events.SchedulerEvent]:
        limiter = self.pool.bucket(name, lease.model).limiter
        new = tuple(limit for limit in limits if limiter.add_limit(limit.dimension, limit.rate))
        if new:
            self._notes.append(BucketLimitsLearned(SELF, lease.credential.quota, lease.model, new))
        return [
            events.LimitLearned(name, lease.model, limit.dimension, limit.amount, limit.seconds)
            for limit in new
        ]

    def _on_provider_error(self, lease: Lease, refusal: Refusal, now: float) -> list[events.SchedulerEvent]:
        call = (lease.request.holder, lease.request.call)
        self._failures[call] = self._failures.get(call, 0) + 1
        breaker = self.pool.breaker(lease.credential.provider, lease.model)
        breaker.record_failure(lease.granted_at, now, self._jitter, refusal.reason)
        address, until = lease.credential.address, breaker.open_until
        self._notes.append(
            ProviderFailed(SELF, address, breaker.failures, until, refusal.reason, now, lease.model)
        )
        return self.breaker_events(now)

    def _call_cut(self, lease: Lease, name: str, event: events.LeaseReleased) -> events.CallCut:
        call = (lease.request.holder, lease.request.call)
        self._cuts[call] = self._cuts.get(call, 0) + 1
        reason = event.refusal.reason if event.refusal else ""
        return events.CallCut(event.item, name, event.model, reason, self._cuts[call], event.usage)

    # Notes for the other runs.

    def _call_sent(self, lease: Lease) -> CallStarted:
        breaker = self.pool.breaker(lease.credential.provider, lease.model)
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

    def _note_learned(self, lease: Lease) -> None:
        """Publish learned limits, or how the provider counts, if they changed since they were last published."""
        bucket_key, limiter = (lease.credential.quota, lease.model), self.pool.bucket_of(lease).limiter
        note = BucketLimitsLearned(
            SELF, *bucket_key, (), limiter.learned, limiter.counting, limiter.window_start
        )
        if note != self._published.get(bucket_key, BucketLimitsLearned(SELF, *bucket_key)):
            self._published[bucket_key] = note
            self._notes.append(note)

    def _note_cooldown(self, lease: Lease, bucket: Bucket) -> None:
        cooldown, quota = bucket.cooldown, lease.credential.quota
        ends = (cooldown.until, cooldown.exhausted_until)
        self._notes.append(
            CooldownStarted(
                SELF, quota, lease.model, *ends, cooldown.reason, cooldown.refused_at, cooldown.no_access
            )
        )
