"""What the other runs on this host do to the keys of this one's pool."""

from typing import assert_never

from agentos.core.bookings import Booking
from agentos.core.buckets import EVERY_MODEL, Bucket, Buckets
from agentos.core.keys import Keys
from agentos.core.loads import Load
from agentos.core.neighbours import BucketBack, BucketLearnt, BucketRefused, CallOver, CallSent, Note, RunGone


class Neighbourhood:
    """Their calls hold slots and count; their refusals and findings are ours too."""

    def __init__(self, keys: Keys, buckets: Buckets) -> None:
        self._keys = keys
        self._buckets = buckets
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
            case BucketRefused():
                self._refused(note)
            case BucketBack():
                if (bucket := self._bucket(note.bucket, note.model)) is not None:
                    bucket.rest.clear()
            case BucketLearnt():
                self._learnt(note)
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
        for key in self._keys:
            if key.credential.fingerprint == note.key:
                key.leases.add(lease)
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            self._bookings[lease] = bucket.pace.book(note.load, note.at)

    def _over(self, note: CallOver) -> None:
        lease = note.lease if note.lease in self._calls else f"{note.run} {note.lease}"
        sent, booking = self._calls.pop(lease, None), self._bookings.pop(lease, None)
        self._keys.free_of((lease,))
        if sent and booking and (bucket := self._bucket(sent.bucket, sent.model)) is not None:
            bucket.pace.settle(booking, note.used if note.used != Load() else sent.load)

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

    def _bucket(self, quota: str, model: str) -> Bucket | None:
        key = self._keys.of_quota(quota)
        return self._buckets.of(key.credential, model) if key else None
