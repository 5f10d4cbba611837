"""Shared quota detector: notices that two buckets draw on one quota, although nobody declared it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentos.core.ratelimit.limiter import RateLimiter

MIN_EVIDENCE = 4  # refusals that only the other bucket's calls explain
MIN_SHARE = 0.25  # of a bucket's refusals; of two that share a quota, about half are explained by the other


@dataclass(slots=True)
class SharedQuotaDetector:
    """Counts refusals that end when a call of another bucket leaves the window, and none of the bucket's own.

    A hint says when a window opens; the call that leaves it then was sent one window earlier. If that was never a call
    of the refused bucket, but again and again one of the same other bucket, both count against one quota. It needs exact
    hints and a learned sliding window.
    """

    _explained: Counter[tuple[str, str]] = field(default_factory=Counter)
    _refusals: Counter[str] = field(default_factory=Counter)
    _reported: set[frozenset[str]] = field(default_factory=set)

    def record_refusal(
        self, bucket: str, limiter: RateLimiter, opens_at: float, others: Iterable[tuple[str, RateLimiter]]
    ) -> str | None:
        """Return the bucket that turns out to share the quota of this one; each pair is returned once."""
        self._refusals[bucket] += 1
        leaving = [opens_at - seconds for seconds in limiter.profile.sliding_lengths()]
        if not leaving or any(limiter.sent_at(at) for at in leaving):
            return None
        for other, its_limiter in others:
            if any(its_limiter.sent_at(at) for at in leaving):
                self._explained[bucket, other] += 1
                pair = frozenset((bucket, other))
                count = self._explained[bucket, other] + self._explained[other, bucket]
                total = self._refusals[bucket] + self._refusals[other]
                if count >= max(MIN_EVIDENCE, MIN_SHARE * total) and pair not in self._reported:
                    self._reported.add(pair)
                    return other
        return None
