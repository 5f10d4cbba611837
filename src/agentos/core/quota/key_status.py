"""How a key stands, told apart by model where its models differ."""

import math
from dataclasses import dataclass

from agentos.core.quota.credentials import KeyState
from agentos.core.quota.pool import Pool
from agentos.core.ratelimit.cooldown import Cooldown

UNUSABLE = (KeyState.DISABLED, KeyState.QUARANTINED)


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A state with the seconds that it lasts, if that is known; without models it is that of all."""

    state: KeyState
    seconds: float = 0.0
    models: tuple[str, ...] = ()


def key_statuses(pool: Pool, name: str, now: float) -> list[KeyStatus]:
    """What can serve first; then what comes back first."""
    credential, state = pool.keys[name].credential, pool.keys.state(name, now)
    if state in UNUSABLE:
        return [KeyStatus(state)]
    rests = {
        model: one.cooldown for (quota, model), one in pool.buckets().items() if quota == credential.quota
    }
    if credential.model in rests:
        rests = {credential.model: rests[credential.model]}
    free = KeyState.AVAILABLE if pool.keys[name].free else KeyState.RESERVED
    groups: dict[tuple[float, KeyState], list[str]] = {}
    for model, rest in sorted(rests.items()):
        # Whole seconds: two ends of one day are not the same number.
        seconds = float(max(0, math.ceil(rest.back_at() - now)))
        groups.setdefault((seconds, _state(rest, free, now)), []).append(model)
    if len(groups) < 2:
        return [KeyStatus(found, seconds) for seconds, found in groups] or [KeyStatus(free)]
    return [KeyStatus(found, seconds, tuple(groups[seconds, found])) for seconds, found in sorted(groups)]


def _state(rest: Cooldown, free: KeyState, now: float) -> KeyState:
    if rest.spent(now):
        return KeyState.EXHAUSTED
    return KeyState.RATE_LIMITED if rest.limited(now) else free
