"""Circuit breaker: stop sending to a model that fails for every key, and probe until it recovers."""

from dataclasses import dataclass
from typing import NamedTuple

from agentos.core.backoff import Jitter, backoff

FAILURE_THRESHOLD = 5  # consecutive failures that open the breaker
FIRST_PROBE_DELAY = 2.0  # seconds


class OpenBreaker(NamedTuple):
    """A breaker that is open, and since when; `model` is empty for calls that name none."""

    provider: str
    model: str
    since: float


@dataclass(slots=True)
class CircuitBreaker:
    """Circuit breaker of one model of a provider, shared by all keys and, through peer notes, all runs on this host.

    A prompt that always ends in a 500 says nothing about other models, so each model has a breaker of its own; in an
    outage of the provider, that of every model in use opens.

    It guards against outages (5xx, broken connections), for which no key is to blame; a refused key gets a
    `Cooldown` instead. It is closed at first. After `FAILURE_THRESHOLD` consecutive failures it opens:
    `allows` then admits one probe at a time, with exponential backoff between probes. The first success
    closes it again.

        if breaker.allows(now):
            breaker.record_send(lease)
            ...
            breaker.close()  # or breaker.record_failure(sent_at, now, jitter, "503")
            breaker.record_end(lease)

    `opened_at` is None while it is closed; `probe` is the lease of the probe in flight.
    """

    failures: int = 0
    opened_at: float | None = None
    open_until: float = 0.0
    probe: str = ""
    reason: str = ""

    def record_failure(self, sent_at: float, now: float, jitter: Jitter, reason: str = "") -> bool:
        """Count a failed call; return whether it opened the breaker."""
        if self.opened_at is not None and sent_at <= self.opened_at:
            # The call was in flight when the breaker opened: it says nothing about recovery.
            return False
        self.failures += 1
        self.reason = reason
        if self.failures < FAILURE_THRESHOLD:
            return False
        opens = self.opened_at is None
        self.opened_at = now if self.opened_at is None else self.opened_at
        self.open_until = now + backoff(self.failures - FAILURE_THRESHOLD + 1, jitter, base=FIRST_PROBE_DELAY)
        return opens

    def merge(self, failures: int, open_until: float, reason: str, at: float) -> None:
        """Apply what another run reported at `at`."""
        self.failures, self.reason = max(self.failures, failures), reason
        if open_until:
            self.opened_at = at if self.opened_at is None else self.opened_at
            self.open_until = max(self.open_until, open_until)

    def close(self) -> None:
        """Forget all failures: the model has answered."""
        self.failures, self.opened_at, self.open_until, self.probe = 0, None, 0.0, ""

    def allows(self, now: float) -> bool:
        return self.opened_at is None or (now >= self.open_until and not self.probe)

    def record_send(self, lease: str) -> None:
        """Note that a call was sent; while the breaker is open, that call is the probe."""
        if self.opened_at is not None:
            self.probe = lease

    def record_end(self, lease: str) -> None:
        """Note that a call has ended, with whatever result, so that the next probe may be sent."""
        if self.probe == lease:
            self.probe = ""
