"""Peer state: the calls, refusals and findings of other runs on this host, applied to the keys of this pool."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, assert_never

from agentos.core.protocol.peer_notes import (
    EARLIER,
    BucketLimitsForgotten,
    BucketLimitsLearned,
    BucketUsage,
    CallEnded,
    CallStarted,
    CooldownCleared,
    CooldownStarted,
    KeyRejected,
    Note,
    ProviderFailed,
    ProviderRecovered,
    QuarantineLifted,
    QuotaSharingFound,
    RunGone,
)
from agentos.core.protocol.ports import PeerLog
from agentos.core.quota.buckets import EVERY_MODEL, Bucket, Buckets
from agentos.core.quota.keys import Key, Keys
from agentos.core.ratelimit.circuit_breaker import CircuitBreaker
from agentos.core.ratelimit.limits import CallCost
from agentos.core.ratelimit.shared_quota import SharedQuota, SharedQuotaDetector
from agentos.core.ratelimit.windows import Reservation

if TYPE_CHECKING:
    from agentos.core.quota.lease_manager import LeaseManager

T = TypeVar("T")


class PeerState:
    """Applies the notes of other runs to the shared keys.

    Their calls hold slots and count towards limits like our own, until they end or their run is gone; their
    refusals, estimates and circuit breakers are adopted.
    """

    def __init__(
        self,
        keys: Keys,
        buckets: Buckets,
        breakers: Mapping[tuple[str, str], CircuitBreaker],
        shared_quotas: SharedQuotaDetector,
        touch: Callable[[list[Key]], None],
    ) -> None:
        """`touch` is called with the keys whose state is about to change."""
        self._touch = touch
        self._keys = keys
        self._buckets = buckets
        self._breakers = breakers
        self._shared_quotas = shared_quotas
        self._calls: dict[str, CallStarted] = {}
        self._reservations: dict[str, Reservation] = {}

    def apply_note(self, note: Note) -> None:
        match note:
            case CallStarted():
                self._on_call_started(note)
            case CallEnded():
                self._on_call_ended(note)
            case RunGone():
                for lease in [lease for lease, call in self._calls.items() if call.run == note.run]:
                    self._on_call_ended(CallEnded(note.run, lease))
            case QuotaSharingFound():
                pair = frozenset((note.bucket, note.other))
                self._shared_quotas.merge(SharedQuota(pair, note.at, note.refusals))
            case KeyRejected() | QuarantineLifted():
                self._apply_quarantine_note(note)
            case ProviderFailed() | ProviderRecovered():
                self._apply_breaker_note(note)
            case _:
                self._apply_bucket_note(note)

    def _apply_bucket_note(
        self,
        note: CooldownStarted | CooldownCleared | BucketLimitsLearned | BucketLimitsForgotten | BucketUsage,
    ) -> None:
        match note:
            case CooldownStarted():
                self._on_cooldown_started(note)
            case CooldownCleared():
                if (bucket := self._bucket(note.bucket, note.model)) is not None:
                    bucket.cooldown.clear()
            case BucketLimitsLearned():
                self._on_bucket_limits_learned(note)
            case BucketLimitsForgotten():
                self._touch(self._keys.find_by_quota(note.bucket))
                self._shared_quotas.forget(note.bucket)
                for (quota, _), bucket in self._buckets.all().items():
                    if quota == note.bucket:
                        bucket.limiter.forget_learned()
            case BucketUsage():
                self._on_bucket_usage(note)
            case _:
                assert_never(note)

    def runs(self) -> set[str]:
        """The other runs that have calls in flight."""
        return {call.run for call in self._calls.values()}

    def calls_on(self, fingerprint: str) -> set[str]:
        return {lease for lease, call in self._calls.items() if call.key == fingerprint}

    def _on_call_started(self, note: CallStarted) -> None:
        lease = f"{note.run} {note.lease}"
        self._calls[lease] = note
        keys = self._keys.find_by_fingerprint(note.key)
        self._touch(keys)
        for key in keys:
            key.add_lease(lease, note.at)
        if note.probed_provider and (breaker := self._breaker(note.probed_provider, note.model)) is not None:
            breaker.record_send(lease)
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            self._reservations[lease] = bucket.limiter.reserve(note.cost, note.at, own=False)

    def _on_call_ended(self, note: CallEnded) -> None:
        lease = note.lease if note.lease in self._calls else f"{note.run} {note.lease}"
        sent, reservation = self._calls.pop(lease, None), self._reservations.pop(lease, None)
        if sent:
            self._remove_lease(lease, sent)
        if sent and note.used != CallCost():
            for key in self._keys.find_by_fingerprint(sent.key):
                key.proven = True
        if (
            sent
            and sent.probed_provider
            and (breaker := self._breaker(sent.probed_provider, sent.model)) is not None
        ):
            breaker.record_end(lease)
        if sent and reservation and (bucket := self._bucket(sent.bucket, sent.model)) is not None:
            if note.refused:
                bucket.limiter.uncount(reservation)
            else:
                bucket.limiter.settle(reservation, note.used if note.used != CallCost() else sent.cost)
            bucket.check_day(sent.at)

    def _on_bucket_usage(self, note: BucketUsage) -> None:
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            for hour in note.hours:
                bucket.limiter.restore_day_usage(hour.calls, hour.at)
            bucket.check_day(note.at)

    def _apply_quarantine_note(self, note: KeyRejected | QuarantineLifted) -> None:
        keys = self._keys.find_by_fingerprint(note.key)
        self._touch(keys)
        for key in keys:
            if isinstance(note, QuarantineLifted):
                key.set_quarantine("")
            else:
                key.set_quarantine(note.reason, inherited=note.run == EARLIER)
                self._touch(self._keys.retry_quarantined(key.credential.provider))

    def _apply_breaker_note(self, note: ProviderFailed | ProviderRecovered) -> None:
        breaker = self._breaker(note.provider, note.model)
        if breaker is None:
            return
        if isinstance(note, ProviderFailed):
            breaker.merge(note.failures, note.open_until, note.reason, note.at)
        else:
            breaker.close()

    def _on_cooldown_started(self, note: CooldownStarted) -> None:
        if note.model == EVERY_MODEL:
            self._buckets.cool_down_all_models(note)
        if (bucket := self._bucket(note.bucket, note.model)) is not None:
            bucket.cooldown.merge(
                note.until, note.exhausted_until, note.reason, note.at, no_access=note.no_access
            )

    def _on_bucket_limits_learned(self, note: BucketLimitsLearned) -> None:
        bucket = self._bucket(note.bucket, note.model)
        if bucket is None:
            return
        for limit in note.limits:
            bucket.limiter.add_limit(limit.dimension, limit.rate)
        if note.learned is not None:
            bucket.limiter.merge(note.learned)
        if note.counting is not None:
            bucket.limiter.merge_counting(note.counting, note.window_start)

    def _breaker(self, address: str, model: str) -> CircuitBreaker | None:
        """Return the circuit breaker of a model at this address, if one of our keys uses it."""
        credentials = (key.credential for key in self._keys if key.credential.address == address)
        return self._breakers[found.provider, model] if (found := next(credentials, None)) else None

    def _bucket(self, quota: str, model: str) -> Bucket | None:
        keys = self._keys.find_by_quota(quota)
        self._touch(keys)
        return self._buckets.of(keys[0].credential, model) if keys else None

    def _remove_lease(self, lease: str, sent: CallStarted) -> None:
        keys = self._keys.find_by_fingerprint(sent.key)
        self._touch(keys)
        for key in keys:
            key.leases.discard(lease)


def with_shared_lock(
    lease_manager: "LeaseManager", peers: PeerLog, decide: Callable[[], T]
) -> tuple[T, bool]:
    """Make a decision under the lock that all runs on this host share.

    While holding the lock, it applies the notes of the other runs, calls `decide` and appends our own notes, so that
    no two runs grant the same slot. If the lock cannot be taken, `decide` is still called, but the lease manager
    grants nothing.

    Return the decision, and whether our notes could be written.
    """
    with peers.lock_and_read() as notes:
        lease_manager.holds_shared_lock = notes is not None
        if notes is not None:
            for note in (*notes, *peers.gone(lease_manager.pool.peer_runs())):
                lease_manager.pool.apply_note(note)
        decision = decide()
        written = peers.append(lease_manager.drain_notes())
    return decision, written
