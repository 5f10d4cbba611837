"""What the other runs on this host do to the keys of this one's pool."""

from collections.abc import Mapping
from typing import assert_never

from agentos.core.bookings import Booking
from agentos.core.buckets import EVERY_MODEL, Bucket, Buckets
from agentos.core.keys import Keys
from agentos.core.loads import Load
from agentos.core.neighbours import (
    EARLIER,
    BucketBack,
    BucketLearnt,
    BucketRefused,
    BucketUsed,
    CallOver,
    CallSent,
    KeyPardoned,
    KeyRejected,
    Note,
    ProviderBack,
    ProviderFailed,
    RunGone,
)
from agentos.core.storm import Weather


class Neighbourhood:
    """Their calls hold slots and count; their refusals and findings are ours too."""

    def __init__(self, keys: Keys, buckets: Buckets, weathers: Mapping[str, Weather]) -> None:
        self._keys = keys
        self._buckets = buckets
        self._weathers = weathers
        self._calls: dict[str, CallSent] = {}
        self._bookings: dict[str, Booking] = {}

    def hear(self, note: Note) -> None:
        match note:
            case CallSent():
                self._sent(note)
            case CallOver():
                self._over(note)
            case RunGone():
                for lease in [lease for lease, call in self._calls.items() if call.run == note.run]:
                    self._over(CallOver(note.run, lease))
            case KeyRejected() | KeyPardoned():
                self._judged(note)
            case ProviderFailed() | ProviderBack():
                self._weathered(note)
            case _:
                self._hear_of_bucket(note)

    def _hear_of_bucket(self, note: BucketRefused | BucketBack | BucketLearnt | BucketUsed) -> None:
        match note:
            case BucketRefused():
                self._refused(note)
            case BucketBack():
                if (bucket := self._bucket(note.bucket, note.model)) is not None:
                    bucket.rest.clear()
            case BucketLearnt():
                self._learnt(note)
            case BucketUsed():
                self._used(note)
            case _:
                assert_never(note)

    def runs(self) -> set[str]:
        """Those that hold one of our keys."""
        return {call.run for call in self._calls.values()}

    def calls_on(self, fingerprint: str) -> set[str]:
        return {lease for lease, call in self._calls.items() if call.key == fingerprint}

    def _sent(self, note: CallSent) -> None:
        lease = f"{note.run} {note.lease}"
        self._calls[lease] = note
        for key in self._keys.of_fingerprint(note.key):
            key.lent(lease, note.at)
        if note.probes and (weather := self._weather(note.probes)) is not None:
            weather.sent(lease)
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            self._bookings[lease] = bucket.pace.book(note.load, note.at)

    def _over(self, note: CallOver) -> None:
        lease = note.lease if note.lease in self._calls else f"{note.run} {note.lease}"
        sent, booking = self._calls.pop(lease, None), self._bookings.pop(lease, None)
        self._keys.free_of((lease,))
        if sent and note.used != Load():
            for key in self._keys.of_fingerprint(sent.key):
                key.proven = True
        if sent and sent.probes and (weather := self._weather(sent.probes)) is not None:
            weather.over(lease)
        if sent and booking and (bucket := self._bucket(sent.bucket, sent.model)) is not None:
            if note.refused:
                bucket.pace.uncount(booking)
            else:
                bucket.pace.settle(booking, note.used if note.used != Load() else sent.load)
            bucket.count_day(sent.at)

    def _used(self, note: BucketUsed) -> None:
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            for hour in note.hours:
                bucket.pace.recall_day(hour.calls, hour.at)
            bucket.count_day(note.at)

    def _judged(self, note: KeyRejected | KeyPardoned) -> None:
        for key in self._keys.of_fingerprint(note.key):
            if isinstance(note, KeyPardoned):
                key.reject("")
            else:
                key.reject(note.reason, hearsay=note.run == EARLIER)
                self._keys.hope(key.credential.provider)

    def _weathered(self, note: ProviderFailed | ProviderBack) -> None:
        weather = self._weather(note.provider)
        if weather is None:
            return
        if isinstance(note, ProviderFailed):
            weather.recall(note.failures, note.open_until, note.reason, note.at)
        else:
            weather.clear()

    def _refused(self, note: BucketRefused) -> None:
        if note.model == EVERY_MODEL:
            self._buckets.rest_for_every_model(note)
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            bucket.rest.recall(note.until, note.spent_until, note.reason, note.at)

    def _learnt(self, note: BucketLearnt) -> None:
        bucket = self._bucket(note.bucket, note.model)
        if bucket is None:
            return
        for limit in note.limits:
            bucket.pace.tell(limit.dimension, limit.rate)
        if note.per_second is not None:
            bucket.pace.recall(note.per_second, note.window, note.weight)
        if note.counting is not None:
            bucket.pace.manners.recall(note.counting, note.boundary)

    def _weather(self, address: str) -> Weather | None:
        """Of the provider at this address, if one of our keys is for it."""
        keys = (key.credential for key in self._keys if key.credential.address == address)
        return self._weathers[key.provider] if (key := next(keys, None)) else None

    def _bucket(self, quota: str, model: str) -> Bucket | None:
        key = self._keys.of_quota(quota)
        return self._buckets.of(key.credential, model) if key else None
