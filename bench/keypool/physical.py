"""The best possible time for a number of calls, with full knowledge of the server's limiters."""

import heapq
from dataclasses import dataclass, field, replace

from agentos.offline.rate_limits import BucketLimiter, OfflineLimits, Spending
from agentos.offline.vendors.neutral import count_tokens
from bench.keypool.job import Job
from bench.keypool.scenarios import Scenario

# What the rule engine answers to a prompt without a task.
ANSWER_TOKENS = 39
MINUTES = 60.0 * 1_000_000


def best_seconds(scenario: Scenario, job: Job, calls: int) -> float:
    """Each call in turn goes to the first key that admits it, as soon as one does."""
    began = now = MINUTES + (scenario.phase or 0.0)
    keys = [_Key(BucketLimiter(replace(limits, counts_refused=False))) for limits in _usable_limits(scenario)]
    free = [now] * scenario.callers
    for call in range(calls):
        now = max(now, heapq.heappop(free))
        tokens = count_tokens(job.prompt(call))
        now, key = _admitted(keys, now, tokens)
        heapq.heappush(key.ends, now + scenario.latency)
        heapq.heappush(free, now + scenario.latency)
    return max(free) - began


@dataclass(slots=True)
class _Key:
    limiter: BucketLimiter
    ends: list[float] = field(default_factory=list)

    def wait(self, now: float, tokens: int) -> float:
        """Seconds until the call would be admitted; 0 if it was."""
        while self.ends and self.ends[0] <= now:
            self.limiter.add_output(heapq.heappop(self.ends), ANSWER_TOKENS)
        over = self.limiter.admit(now, Spending(tokens))
        return max((one.wait or 0.0 for one in over), default=0.0)


def _admitted(keys: list[_Key], now: float, tokens: int) -> tuple[float, _Key]:
    while True:
        waits = []
        for key in keys:
            wait = key.wait(now, tokens)
            if wait == 0:
                return now, key
            waits.append(wait)
        now += min(waits)


def _usable_limits(scenario: Scenario) -> list[OfflineLimits]:
    return [limits for index, limits in enumerate(scenario.limits) if index not in scenario.dead]
