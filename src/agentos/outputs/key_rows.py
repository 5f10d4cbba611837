"""The keys of a pool for people: the state of each, how much of its quota is used, what was learned about it."""

import time
from dataclasses import dataclass

from agentos.core.quota.buckets import Bucket
from agentos.core.quota.credentials import Credential
from agentos.core.quota.key_status import KeyStatus, describe_certainty, describe_learned, key_statuses
from agentos.core.quota.pool import Pool


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key: its status per model, its usage of each limit (name, used, limit) and its last refusal."""

    credential: Credential
    statuses: tuple[KeyStatus, ...]
    used: tuple[tuple[str, float, float], ...]
    reason: str
    learned: tuple["LearnedRow", ...] = ()
    shares: tuple["SharedRow", ...] = ()


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """What was learned about a key for one model, how certain that is, and since when (wall clock)."""

    model: str
    limits: str
    certainty: str
    since: float


@dataclass(frozen=True, slots=True)
class SharedRow:
    """Another key that seems to share the quota, the refusals that show it, and since when (wall clock)."""

    key: str
    refusals: int
    since: float


def key_row(pool: Pool, credential: Credential, now: float) -> KeyRow:
    buckets = {
        model: bucket for (quota, model), bucket in pool.buckets().items() if quota == credential.quota
    }
    limited = {model: bucket for model, bucket in buckets.items() if bucket.limiter.rates}
    used = tuple(
        entry
        for model, bucket in limited.items()
        for entry in _usage(bucket, f" for {model}" if len(limited) > 1 else "", now)
    )
    reasons = [bucket.cooldown.reason for bucket in buckets.values() if bucket.cooldown.reason]
    reasons += [reason for name, reason in pool.keys.quarantined().items() if name == credential.name]
    statuses = tuple(key_statuses(pool, credential.name, now))
    learned = tuple(
        LearnedRow(model, describe_learned(found), describe_certainty(found), time.time() - now + found.since)
        for model, bucket in sorted(buckets.items())
        if (found := bucket.limiter.learned)
    )
    shares = tuple(
        SharedRow(key.credential.name, shared.refusals, time.time() - now + shared.since)
        for quota, shared in pool.shared_quotas.shared_with(credential.quota)
        for key in pool.keys.find_by_quota(quota)
    )
    return KeyRow(credential, statuses, used, reasons[-1] if reasons else "", learned, shares)


def _usage(bucket: Bucket, model: str, now: float) -> list[tuple[str, float, float]]:
    return [
        (f"{dimension.value}/{rate.seconds:g}s{model}", bucket.limiter.used(dimension, now), rate.amount)
        for dimension, rate in bucket.limiter.rates.items()
    ]


def key_json(row: KeyRow) -> dict[str, object]:
    """One entry of `agentos keys --json`, of the keys on the page, and of the keys that a gateway shows."""
    key = row.credential
    now = time.time()
    return {
        "name": key.name,
        "provider": key.provider,
        "model": key.model,
        "base_url": key.base_url,
        "bucket": key.bucket or None,
        "concurrency": key.concurrency,
        "states": [
            {
                "state": status.state.value,
                "models": list(status.models),
                "until": round(now + status.seconds, 3) if status.seconds else None,
            }
            for status in row.statuses
        ],
        "limits": [{"limit": name, "used": used, "of": limit} for name, used, limit in row.used],
        "learned": [
            {
                "model": one.model,
                "limits": one.limits,
                "certainty": one.certainty,
                "since": round(one.since, 3),
            }
            for one in row.learned
        ],
        "shares_quota_with": [
            {"key": one.key, "refusals": one.refusals, "since": round(one.since, 3)} for one in row.shares
        ],
        "last_refusal": row.reason or None,
    }
