"""Key status: the state of a key for people, per model where its models differ."""

import math
from dataclasses import dataclass

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.cooldown import Cooldown


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A key's state and how many seconds it lasts (0 if unknown); no models means that it holds for all."""

    state: KeyState
    seconds: float = 0.0
    models: tuple[str, ...] = ()


def key_statuses(pool: Pool, name: str, now: float) -> list[KeyStatus]:
    """Return one status for all models, or one per group of models in the same state; soonest usable first."""
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
    if len(groups) < 2:
        return [KeyStatus(found, seconds) for seconds, found in groups] or [KeyStatus(idle_state)]
    return [KeyStatus(found, seconds, tuple(groups[seconds, found])) for seconds, found in sorted(groups)]


def _state(cooldown: Cooldown, idle_state: KeyState, now: float) -> KeyState:
    if cooldown.exhausted(now):
        return KeyState.EXHAUSTED
    return KeyState.RATE_LIMITED if cooldown.limited(now) else idle_state
