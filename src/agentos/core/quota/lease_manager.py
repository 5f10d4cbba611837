"""What the asking for keys, and their giving back, means for the pool."""

from agentos.core.backoff import Jitter, backoff
from agentos.core.protocol import events
from agentos.core.protocol.commands import GrantLease
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
from agentos.core.quota.credential_diff import diff_credentials
from agentos.core.quota.credentials import Credential
from agentos.core.quota.lease import Lease, LeaseRequest
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.limits import CallCost, Dimension, LimitSeen
from agentos.core.ratelimit.refusals import Refusal, RefusalKind, clamp_hint

DAY = 86400.0
LOOK_AGAIN = 0.02
# Until a run has seen what its models write.
USUAL_OUTPUT = 1500
# Whoever carries the notes to the neighbours puts the name of this run.
SELF = ""


class LeaseManager:
    """Owns the pool; remembers which calls failed how often, and what the neighbours should know."""

    def __init__(self, pool: Pool, jitter: Jitter, budget: Budget) -> None:
        self.pool = pool
        self.budget = budget
        self.holds_shared_lock = True
        """Out of turn, another run may be giving out the same keys: none is given here."""
        self._jitter = jitter
        self._provider_errors: dict[tuple[str, str], int] = {}
        self._notes: list[Note] = []
        self._found: dict[tuple[str, str], BucketLimitsLearned] = {}
        self._written: dict[tuple[str, ...], float] = {}
        self._open_breakers: dict[str, float] = {}

    def request(self, event: events.LeaseRequested, now: float) -> None:
        failures = self._provider_errors.get((event.item, event.call), 0)
        wait = backoff(failures, self._jitter) if failures else 0.0
        self.pool.request(
            LeaseRequest(
                holder=event.item,
                call=event.call,
                providers=event.providers,
                requested_at=now,
                not_before=now + wait,
                models=event.models,
                cost=CallCost(event.input_tokens, event.output_tokens or self._usual(event.models)),
                calls_done=event.calls_done,
            )
        )

    def grants(self, now: float) -> list[Lease]:
        if not self.holds_shared_lock:
            return []
        self.budget.refused = False
        granted = self.pool.grant(now, self.budget.can_afford)
        for lease in granted:
            self.budget.reserve(lease.id, lease.model, lease.request.cost)
            self._notes.append(self._sent(lease))
            self._note_found(lease)
        return granted

    def release(self, event: events.LeaseReleased, now: float) -> list[events.News]:
        lease = self.pool.release(event.lease)
        name = self.pool.known_as(lease.credential) if lease else None
        if lease is None:
            return []
        used = CallCost(event.usage.input_tokens, event.usage.output_tokens)
        refused = event.refusal is not None and event.refusal.kind is not RefusalKind.PROVIDER_ERROR
        self._notes.append(CallEnded(SELF, lease.id, used, refused))
        news = self._counted(lease, event)
        if name is None:
            return news
        news += self._limits_seen(lease, name, event.limits)
        if event.refusal is None:
            news += self._served(lease, name, used, now)
        else:
            news += self._refused(lease, name, event.refusal, now)
        return news + self._count_day(lease, name, now)

    def drop_holder(self, holder: str) -> None:
        self._notes += [CallEnded(SELF, lease.id) for lease in self.pool.drop_holder(holder)]
        self._provider_errors = {key: n for key, n in self._provider_errors.items() if key[0] != holder}

    def replace_credentials(self, credentials: list[Credential]) -> list[events.News]:
        change = diff_credentials([key.credential for key in self.pool.keys], credentials)
        self.pool.replace(credentials)
        return [change] if change else []

    def breaker_news(self, now: float) -> list[events.News]:
        """Storms that have begun or ended since the last look, whichever run has met them."""
        storms = dict(self.pool.open_breakers())
        if storms.keys() == self._open_breakers.keys():
            return []
        began = [
            self._on_breaker_opened(provider, now)
            for provider in storms
            if provider not in self._open_breakers
        ]
        before = self._open_breakers.items()
        ended = [events.BreakerClosed(one, now - since) for one, since in before if one not in storms]
        self._open_breakers = storms
        for storm in ended:
            self.pool.skip_backoff(storm.provider, now)
        return [*began, *ended]

    def _on_breaker_opened(self, provider: str, now: float) -> events.BreakerOpened:
        breaker = self.pool.breaker(provider)
        return events.BreakerOpened(provider, breaker.reason, max(0.0, breaker.open_until - now))

    def drain_notes(self) -> list[Note]:
        taken, self._notes = self._notes, []
        return taken

    def wake_at(self, now: float) -> float | None:
        """When a waiting call might be served; what neighbours hold is looked at again soon."""
        moments = [at] if (at := self.pool.wake_at(now)) is not None else []
        if not self.holds_shared_lock and self.pool.waiting(now):
            return now + LOOK_AGAIN
        if self.pool.peer_runs() and self.pool.waiting(now):
            moments.append(now + LOOK_AGAIN)
        return min(moments, default=None)

    # What an answer, or a refusal, teaches.

    def _usual(self, models: tuple[str, ...]) -> int:
        """What an item's first call will write, as far as can be told."""
        return round(self._written.get(models, USUAL_OUTPUT))

    def _remember_written(self, models: tuple[str, ...], tokens: int) -> None:
        before = self._written.get(models, tokens)
        self._written[models] = before + (tokens - before) * 0.3

    def _counted(self, lease: Lease, event: events.LeaseReleased) -> list[events.News]:
        model = event.model or lease.model
        cost = self.budget.settle(lease.id, lease.model or model, event.usage)
        if not event.usage.calls:
            return []
        return [events.CallCompleted(event.item, lease.credential.name, model, event.usage, cost)]

    def _served(self, lease: Lease, name: str, used: CallCost, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        bucket.limiter.settle(lease.reservation, used)
        self.pool.prove(name)
        self._remember_written(lease.request.models, used.output_tokens)
        self._provider_errors.pop((lease.request.holder, lease.request.call), None)
        news = self._cleared(lease, now)
        rested = bucket.cooldown.refused_at <= lease.granted_at and (
            bucket.cooldown.consecutive_refusals or bucket.cooldown.spent_until
        )
        if bucket.cooldown.served(lease.granted_at):
            news.append(events.KeyRecovered(name))
        if rested:
            self._notes.append(CooldownCleared(SELF, lease.credential.quota, lease.model))
        return news

    def _cleared(self, lease: Lease, now: float) -> list[events.News]:
        """It answers: whatever failed before is over, for every run."""
        breaker = self.pool.breaker(lease.credential.provider)
        if breaker.failures:
            self._notes.append(ProviderRecovered(SELF, lease.credential.address))
        breaker.clear()
        return self.breaker_news(now)

    def _count_day(self, lease: Lease, name: str, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        if not bucket.count_day(now):
            return []
        self._note_rest(lease, bucket)
        return [events.KeyExhausted(name, bucket.cooldown.spent_until - now, bucket.cooldown.reason)]

    def _refused(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        match refusal.kind:
            case RefusalKind.RATE_LIMITED:
                self.pool.prove(name)
                learnt = self._learn(lease, name, refusal, now)
                seconds = bucket.cooldown.limit(now, _hint(refusal, bucket), refusal.reason)
                self._note_rest(lease, bucket)
                return [*learnt, events.KeyLimited(name, seconds, refusal.reason)]
            case RefusalKind.DAY_EXHAUSTED:
                ends = bucket.cooldown.spend(now, refusal.day_seconds or DAY, refusal.reason)
                self._note_rest(lease, bucket)
                return [events.KeyExhausted(name, ends, refusal.reason)]
            case RefusalKind.KEY_REJECTED:
                self.pool.quarantine(name, refusal.reason)
                self._notes.append(KeyRejected(SELF, lease.credential.fingerprint, refusal.reason, now))
                return [events.KeyQuarantined(name, refusal.reason)]
            case RefusalKind.PROVIDER_ERROR:
                bucket.limiter.drop(lease.reservation)
                return self._on_provider_error(lease, refusal, now)

    def _learn(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        """A named limit is taken; a refusal that names none, or one that was kept to, is measured."""
        pace = self.pool.bucket(name, lease.model).limiter
        fresh = pace.cancel(lease.reservation, now)
        news = self._limits_seen(lease, name, refusal.limits)
        told = None if refusal.seconds is None else now + clamp_hint(refusal.seconds)
        if pace.observe(lease.reservation, told) or news:
            self._note_found(lease)
            return news
        if refusal.limits and all(limit.dimension is not Dimension.REQUESTS for limit in refusal.limits):
            return news
        took = now - lease.granted_at
        hint = took + clamp_hint(refusal.seconds)
        if fresh:
            pace.refused(lease.reservation, hint, took, told=refusal.seconds is not None)
            self._note_found(lease)
        else:
            pace.refused_again(lease.reservation, hint)
        return news

    def _note_found(self, lease: Lease) -> None:
        """A rate that was measured or has grown, and a way of counting, are told once."""
        place, pace = (lease.credential.quota, lease.model), self.pool.bucket_of(lease).limiter
        profile = pace.profile
        found = BucketLimitsLearned(
            SELF,
            *place,
            (),
            pace.per_second(),
            pace.window(),
            pace.weight(),
            profile.counting,
            profile.boundary,
        )
        if found != self._found.get(place, BucketLimitsLearned(SELF, *place)):
            self._found[place] = found
            self._notes.append(found)

    def _limits_seen(self, lease: Lease, name: str, limits: tuple[LimitSeen, ...]) -> list[events.News]:
        pace = self.pool.bucket(name, lease.model).limiter
        news = tuple(limit for limit in limits if pace.add_limit(limit.dimension, limit.rate))
        if news:
            self._notes.append(BucketLimitsLearned(SELF, lease.credential.quota, lease.model, news))
        return [
            events.LimitLearned(name, lease.model, limit.dimension, limit.amount, limit.seconds)
            for limit in news
        ]

    def _on_provider_error(self, lease: Lease, refusal: Refusal, now: float) -> list[events.News]:
        call = (lease.request.holder, lease.request.call)
        self._provider_errors[call] = self._provider_errors.get(call, 0) + 1
        breaker = self.pool.breaker(lease.credential.provider)
        breaker.failed(lease.granted_at, now, self._jitter, refusal.reason)
        address, until = lease.credential.address, breaker.open_until
        self._notes.append(ProviderFailed(SELF, address, breaker.failures, until, refusal.reason, now))
        return self.breaker_news(now)

    def _sent(self, lease: Lease) -> CallStarted:
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

    def _note_rest(self, lease: Lease, bucket: Bucket) -> None:
        rest, quota = bucket.cooldown, lease.credential.quota
        ends = (rest.until, rest.spent_until)
        self._notes.append(CooldownStarted(SELF, quota, lease.model, *ends, rest.reason, rest.refused_at))


def _hint(refusal: Refusal, bucket: Bucket) -> float | None:
    return None if refusal.seconds is None else refusal.seconds + bucket.limiter.short_hint()


def granted(lease: Lease) -> GrantLease:
    """The order that carries the key to its holder."""
    credential = lease.credential
    return GrantLease(
        item=lease.request.holder,
        call=lease.request.call,
        lease=lease.id,
        key=credential.name,
        provider=credential.provider,
        secret=credential.secret,
        base_url=credential.base_url,
        model=lease.model or None,
    )
