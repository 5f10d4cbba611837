"""What the asking for keys, and their giving back, means for the pool."""

from agentos.core import events
from agentos.core.backoff import Jitter, backoff
from agentos.core.buckets import Bucket
from agentos.core.commands import GrantLease
from agentos.core.credentials import Credential
from agentos.core.edits import edited
from agentos.core.loads import Dimension, LimitSeen, Load
from agentos.core.money import Purse
from agentos.core.neighbours import (
    BucketBack,
    BucketLearnt,
    BucketRefused,
    CallOver,
    CallSent,
    KeyRejected,
    Note,
    ProviderBack,
    ProviderFailed,
)
from agentos.core.pool import Pool
from agentos.core.refusals import Refusal, RefusalKind, clamp_hint
from agentos.core.wants import Lease, Want

DAY = 86400.0
LOOK_AGAIN = 0.02
# Until a run has seen what its models write.
USUAL_OUTPUT = 1500
# Whoever carries the notes to the neighbours puts the name of this run.
US = ""


class Leasing:
    """Owns the pool; remembers which calls failed how often, and what the neighbours should know."""

    def __init__(self, pool: Pool, jitter: Jitter, purse: Purse) -> None:
        self.pool = pool
        self.purse = purse
        self.in_turn = True
        """Out of turn, another run may be giving out the same keys: none is given here."""
        self._jitter = jitter
        self._troubles: dict[tuple[str, str], int] = {}
        self._notes: list[Note] = []
        self._found: dict[tuple[str, str], BucketLearnt] = {}
        self._written: dict[tuple[str, ...], float] = {}
        self._storms: dict[str, float] = {}

    def wanted(self, event: events.LeaseWanted, now: float) -> None:
        failures = self._troubles.get((event.item, event.call), 0)
        wait = backoff(failures, self._jitter) if failures else 0.0
        self.pool.ask(
            Want(
                holder=event.item,
                call=event.call,
                providers=event.providers,
                asked_at=now,
                not_before=now + wait,
                models=event.models,
                load=Load(event.input_tokens, event.output_tokens or self._usual(event.models)),
                behind=event.behind,
            )
        )

    def grants(self, now: float) -> list[Lease]:
        if not self.in_turn:
            return []
        self.purse.refused = False
        granted = self.pool.grant(now, self.purse.affords)
        for lease in granted:
            self.purse.reserve(lease.id, lease.model, lease.want.load)
            self._notes.append(self._sent(lease))
            self._note_found(lease)
        return granted

    def returned(self, event: events.LeaseReturned, now: float) -> list[events.News]:
        lease = self.pool.give_back(event.lease)
        name = self.pool.known_as(lease.credential) if lease else None
        if lease is None:
            return []
        used = Load(event.usage.input_tokens, event.usage.output_tokens)
        refused = event.refusal is not None and event.refusal.kind is not RefusalKind.TROUBLE
        self._notes.append(CallOver(US, lease.id, used, refused))
        news = self._counted(lease, event)
        if name is None:
            return news
        news += self._limits_seen(lease, name, event.limits)
        if event.refusal is None:
            news += self._served(lease, name, used, now)
        else:
            news += self._refused(lease, name, event.refusal, now)
        return news + self._count_day(lease, name, now)

    def gone(self, holder: str) -> None:
        self._notes += [CallOver(US, lease.id) for lease in self.pool.forget(holder)]
        self._troubles = {key: n for key, n in self._troubles.items() if key[0] != holder}

    def replaced(self, credentials: list[Credential]) -> list[events.News]:
        change = edited([key.credential for key in self.pool.keys], credentials)
        self.pool.replace(credentials)
        return [change] if change else []

    def weather_news(self, now: float) -> list[events.News]:
        """Storms that have begun or ended since the last look, whichever run has met them."""
        storms = dict(self.pool.storms())
        if storms.keys() == self._storms.keys():
            return []
        began = [self._storm_began(provider, now) for provider in storms if provider not in self._storms]
        before = self._storms.items()
        ended = [events.StormEnded(one, now - since) for one, since in before if one not in storms]
        self._storms = storms
        for storm in ended:
            self.pool.hurry(storm.provider, now)
        return [*began, *ended]

    def _storm_began(self, provider: str, now: float) -> events.StormBegan:
        weather = self.pool.weather(provider)
        return events.StormBegan(provider, weather.reason, max(0.0, weather.open_until - now))

    def take_notes(self) -> list[Note]:
        taken, self._notes = self._notes, []
        return taken

    def wake_at(self, now: float) -> float | None:
        """When a waiting call might be served; what neighbours hold is looked at again soon."""
        moments = [at] if (at := self.pool.wake_at(now)) is not None else []
        if not self.in_turn and self.pool.waiting(now):
            return now + LOOK_AGAIN
        if self.pool.foreign_runs() and self.pool.waiting(now):
            moments.append(now + LOOK_AGAIN)
        return min(moments, default=None)

    # What an answer, or a refusal, teaches.

    def _usual(self, models: tuple[str, ...]) -> int:
        """What an item's first call will write, as far as can be told."""
        return round(self._written.get(models, USUAL_OUTPUT))

    def _remember_written(self, models: tuple[str, ...], tokens: int) -> None:
        before = self._written.get(models, tokens)
        self._written[models] = before + (tokens - before) * 0.3

    def _counted(self, lease: Lease, event: events.LeaseReturned) -> list[events.News]:
        model = event.model or lease.model
        cost = self.purse.settle(lease.id, lease.model or model, event.usage)
        if not event.usage.calls:
            return []
        return [events.CallCounted(event.item, lease.credential.name, model, event.usage, cost)]

    def _served(self, lease: Lease, name: str, used: Load, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        bucket.pace.settle(lease.booking, used)
        self.pool.prove(name)
        self._remember_written(lease.want.models, used.output_tokens)
        self._troubles.pop((lease.want.holder, lease.want.call), None)
        news = self._cleared(lease, now)
        rested = bucket.rest.refused_at <= lease.granted_at and (
            bucket.rest.strikes or bucket.rest.spent_until
        )
        if bucket.rest.served(lease.granted_at):
            news.append(events.KeyRecovered(name))
        if rested:
            self._notes.append(BucketBack(US, lease.credential.quota, lease.model))
        return news

    def _cleared(self, lease: Lease, now: float) -> list[events.News]:
        """It answers: whatever failed before is over, for every run."""
        weather = self.pool.weather(lease.credential.provider)
        if weather.failures:
            self._notes.append(ProviderBack(US, lease.credential.address))
        weather.clear()
        return self.weather_news(now)

    def _count_day(self, lease: Lease, name: str, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        if not bucket.count_day(now):
            return []
        self._note_rest(lease, bucket)
        return [events.KeySpent(name, bucket.rest.spent_until - now, bucket.rest.reason)]

    def _refused(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        bucket = self.pool.bucket(name, lease.model)
        match refusal.kind:
            case RefusalKind.RATE_LIMITED:
                self.pool.prove(name)
                learnt = self._learn(lease, name, refusal, now)
                seconds = bucket.rest.limit(now, _hint(refusal, bucket), refusal.reason)
                self._note_rest(lease, bucket)
                return [*learnt, events.KeyLimited(name, seconds, refusal.reason)]
            case RefusalKind.DAY_EXHAUSTED:
                ends = bucket.rest.spend(now, refusal.day_seconds or DAY, refusal.reason)
                self._note_rest(lease, bucket)
                return [events.KeySpent(name, ends, refusal.reason)]
            case RefusalKind.KEY_REJECTED:
                self.pool.quarantine(name, refusal.reason)
                self._notes.append(KeyRejected(US, lease.credential.fingerprint, refusal.reason, now))
                return [events.KeyQuarantined(name, refusal.reason)]
            case RefusalKind.TROUBLE:
                bucket.pace.drop(lease.booking)
                return self._trouble(lease, refusal, now)

    def _learn(self, lease: Lease, name: str, refusal: Refusal, now: float) -> list[events.News]:
        """A named limit is taken; a refusal that names none, or one that was kept to, is measured."""
        pace = self.pool.bucket(name, lease.model).pace
        fresh = pace.cancel(lease.booking, now)
        news = self._limits_seen(lease, name, refusal.limits)
        told = None if refusal.seconds is None else now + clamp_hint(refusal.seconds)
        if pace.observe(lease.booking, told) or news:
            self._note_found(lease)
            return news
        if refusal.limits and all(limit.dimension is not Dimension.REQUESTS for limit in refusal.limits):
            return news
        took = now - lease.granted_at
        hint = took + clamp_hint(refusal.seconds)
        if fresh:
            pace.refused(lease.booking, hint, took, told=refusal.seconds is not None)
            self._note_found(lease)
        else:
            pace.refused_again(lease.booking, hint)
        return news

    def _note_found(self, lease: Lease) -> None:
        """A rate that was measured or has grown, and a way of counting, are told once."""
        place, pace = (lease.credential.quota, lease.model), self.pool.bucket_of(lease).pace
        manners = pace.manners
        found = BucketLearnt(
            US,
            *place,
            (),
            pace.per_second(),
            pace.window(),
            pace.weight(),
            manners.counting,
            manners.boundary,
        )
        if found != self._found.get(place, BucketLearnt(US, *place)):
            self._found[place] = found
            self._notes.append(found)

    def _limits_seen(self, lease: Lease, name: str, limits: tuple[LimitSeen, ...]) -> list[events.News]:
        pace = self.pool.bucket(name, lease.model).pace
        news = tuple(limit for limit in limits if pace.tell(limit.dimension, limit.rate))
        if news:
            self._notes.append(BucketLearnt(US, lease.credential.quota, lease.model, news))
        return [
            events.LimitLearnt(name, lease.model, limit.dimension, limit.amount, limit.seconds)
            for limit in news
        ]

    def _trouble(self, lease: Lease, refusal: Refusal, now: float) -> list[events.News]:
        call = (lease.want.holder, lease.want.call)
        self._troubles[call] = self._troubles.get(call, 0) + 1
        weather = self.pool.weather(lease.credential.provider)
        weather.failed(lease.granted_at, now, self._jitter, refusal.reason)
        address, until = lease.credential.address, weather.open_until
        self._notes.append(ProviderFailed(US, address, weather.failures, until, refusal.reason, now))
        return self.weather_news(now)

    def _sent(self, lease: Lease) -> CallSent:
        weather = self.pool.weather(lease.credential.provider)
        return CallSent(
            run=US,
            lease=lease.id,
            key=lease.credential.fingerprint,
            bucket=lease.credential.quota,
            model=lease.model,
            at=lease.granted_at,
            load=lease.want.load,
            probes=lease.credential.address if weather.probe == lease.id else "",
        )

    def _note_rest(self, lease: Lease, bucket: Bucket) -> None:
        rest, quota = bucket.rest, lease.credential.quota
        ends = (rest.until, rest.spent_until)
        self._notes.append(BucketRefused(US, quota, lease.model, *ends, rest.reason, rest.refused_at))


def _hint(refusal: Refusal, bucket: Bucket) -> float | None:
    return None if refusal.seconds is None else refusal.seconds + bucket.pace.short_hint()


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
        model=lease.model or None,
    )
