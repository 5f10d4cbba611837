"""Shared quota detector: notices when two buckets draw on one quota although the credentials do not say so."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.ratelimit.limiter import RateLimiter

MIN_EVIDENCE = 4  # refusals that only the other bucket's calls explain
MIN_SHARE = 0.25  # of the refusals; if two buckets share a quota, the other one explains about half of them


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """Two buckets that seem to share one quota, since when, and how many refusals show it."""

    buckets: frozenset[str]
    since: float
    refusals: int


@dataclass(slots=True)
class SharedQuotaDetector:
    """Counts refusals that end when a call of another bucket, and none of the bucket's own, leaves the window.

    A hint says when a window opens; the call that leaves it at that moment was sent one window earlier. If that is never
    a call of the refused bucket, but repeatedly one of the same other bucket, both draw on one quota. This needs exact
    hints and a learned sliding window.
    """

    found: dict[frozenset[str], SharedQuota] = field(default_factory=dict)
    _explained: Counter[frozenset[str]] = field(default_factory=Counter)
    _refusals: Counter[str] = field(default_factory=Counter)

    def record_refusal(
        self,
        bucket: str,
        limiter: RateLimiter,
        now: float,
        opens_at: float,
        others: Iterable[tuple[str, RateLimiter]],
    ) -> list[str]:
        """Return the buckets that turn out to share the quota of this one; each pair is returned once."""
        self._refusals[bucket] += 1
        leaving = [opens_at - seconds for seconds in limiter.profile.sliding_lengths()]
        if not leaving or any(limiter.sent_at(at) for at in leaving):
            return []
        new = []
        for other, its_limiter in others:
            if any(its_limiter.sent_at(at) for at in leaving):
                pair = frozenset((bucket, other))
                self._explained[pair] += 1
                if pair not in self.found and self._is_convincing(pair):
                    self.found[pair] = SharedQuota(pair, now, self._explained[pair])
                    new.append(other)
        return new

    def _is_convincing(self, pair: frozenset[str]) -> bool:
        total = sum(self._refusals[bucket] for bucket in pair)
        return self._explained[pair] >= max(MIN_EVIDENCE, MIN_SHARE * total)

    def merge(self, shared: SharedQuota) -> None:
        """Adopt what another run has found."""
        self.found.setdefault(shared.buckets, shared)

    def forget(self, bucket: str) -> None:
        """Drop what was found about this bucket, and the evidence for it."""
        self.found = {pair: shared for pair, shared in self.found.items() if bucket not in pair}
        self._explained = Counter(
            {pair: count for pair, count in self._explained.items() if bucket not in pair}
        )
        self._refusals.pop(bucket, None)

    def shared_with(self, bucket: str) -> list[tuple[str, SharedQuota]]:
        """The other buckets that seem to share the quota of this one."""
        return [
            (other, shared)
            for pair, shared in self.found.items()
            if bucket in pair
            for other in pair - {bucket}
        ]
