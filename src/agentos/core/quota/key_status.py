"""Key status: the state of a key as shown to people, per model where its models differ."""

import math
from dataclasses import dataclass, replace

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.cooldown import Cooldown
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A key's state and how many seconds it lasts (0 if unknown); without models it applies to all of them."""

    state: KeyState
    seconds: float = 0.0
    models: tuple[str, ...] = ()


def key_statuses(pool: Pool, name: str, now: float) -> list[KeyStatus]:
    """Return one status for all models, or one per group of models in the same state; soonest usable first.

    A model that the key may not use is always named, since the key may still be allowed to use others.
    """
    key, state = pool.keys[name], pool.keys.state(name, now)
    if state in (KeyState.DISABLED, KeyState.QUARANTINED):
        return [KeyStatus(state)]
    credential = key.credential
    cooldowns = {
        model: bucket.cooldown
        for (quota, model), bucket in pool.buckets().items()
        if quota == credential.quota
    }
    if credential.model in cooldowns:
        cooldowns = {credential.model: cooldowns[credential.model]}
    idle_state = KeyState.AVAILABLE if key.free else KeyState.RESERVED
    groups: dict[tuple[float, KeyState], list[str]] = {}
    for model, cooldown in sorted(cooldowns.items()):
        # Whole seconds, so that models whose cooldowns end together fall into one group.
        seconds = float(max(0, math.ceil(cooldown.ends_at() - now)))
        groups.setdefault((seconds, _state(cooldown, idle_state, now)), []).append(model)
    if not groups:
        return [KeyStatus(idle_state)]
    statuses = [KeyStatus(found, seconds, tuple(groups[seconds, found])) for seconds, found in sorted(groups)]
    if len(statuses) == 1 and (statuses[0].state is not KeyState.NO_ACCESS or statuses[0].models == ("",)):
        return [replace(statuses[0], models=())]
    return statuses


def describe_learned(learned: LearnedLimits) -> str:
    """What was learned about a bucket: `10 requests in any 10 s`, `5 requests at once, then 1 every 0.2 s`."""
    parts = [_describe_limit(limit) for limit in learned.limits]
    if learned.concurrency is not None:
        parts.append(f"{learned.concurrency} {'call' if learned.concurrency == 1 else 'calls'} at a time")
    return " and ".join(parts)


def describe_certainty(learned: LearnedLimits) -> str:
    match learned.refusals:
        case 0:
            return "measured only"
        case 1:
            return "from 1 refusal"
        case count:
            return f"explains {count} refusals"


def _describe_limit(limit: LearnedLimit) -> str:
    what = "tokens" if limit.dimension is Dimension.TOKENS else "requests" if limit.amount > 1 else "request"
    match limit.counting:
        case Counting.SLIDING:
            return f"{limit.amount:g} {what} in any {limit.seconds:.4g} s"
        case Counting.FIXED:
            return f"{limit.amount:g} {what} in each window of {limit.seconds:g} s"
        case Counting.TOKEN_BUCKET:
            return f"{limit.amount:.4g} {what} at once, {60 * limit.rate.per_second:.3g} a minute"


def _state(cooldown: Cooldown, idle_state: KeyState, now: float) -> KeyState:
    if cooldown.exhausted(now):
        return KeyState.NO_ACCESS if cooldown.no_access else KeyState.EXHAUSTED
    return KeyState.RATE_LIMITED if cooldown.limited(now) else idle_state
