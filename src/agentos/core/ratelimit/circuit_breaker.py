"""When a provider fails for everybody: stop sending, look again now and then."""

from dataclasses import dataclass

from agentos.core.backoff import Jitter, backoff

FAILURES = 5


@dataclass(slots=True)
class CircuitBreaker:
    """One provider's; a storm is so many failures in a row, by whatever call of whatever run on this host.

    `probe` is the one call under way that looks whether it is over.
    """

    failures: int = 0
    began: float | None = None
    open_until: float = 0.0
    probe: str = ""
    reason: str = ""

    def failed(self, sent_at: float, now: float, jitter: Jitter, reason: str = "") -> bool:
        """Whether a storm begins with this failure."""
        if self.began is not None and sent_at <= self.began:
            # It was under way when the storm began, and tells nothing of how long that lasts.
            return False
        self.failures += 1
        self.reason = reason
        if self.failures < FAILURES:
            return False
        begins = self.began is None
        self.began = now if self.began is None else self.began
        self.open_until = now + backoff(self.failures - FAILURES + 1, jitter, base=2.0)
        return begins

    def merge(self, failures: int, open_until: float, reason: str, at: float) -> None:
        """What another run has met; here, the storm begins with being told of it."""
        self.failures, self.reason = max(self.failures, failures), reason
        if open_until:
            self.began = at if self.began is None else self.began
            self.open_until = max(self.open_until, open_until)

    def clear(self) -> None:
        """It has answered: what failed before is over."""
        self.failures, self.began, self.open_until, self.probe = 0, None, 0.0, ""

    def allows(self, now: float) -> bool:
        return self.began is None or (now >= self.open_until and not self.probe)

    def sent(self, lease: str) -> None:
        if self.began is not None:
            self.probe = lease

    def over(self, lease: str) -> None:
        """Whatever it brought, and if its holder died: the next probe may go."""
        if self.probe == lease:
            self.probe = ""
