"""When a provider fails for everybody: stop sending, look again now and then."""

from dataclasses import dataclass

from agentos.core.backoff import Jitter, backoff

FAILURES = 5


@dataclass(slots=True)
class Weather:
    """One provider's; a storm is so many failures in a row, by whatever call."""

    failures: int = 0
    began: float | None = None
    open_until: float = 0.0
    probing: bool = False

    def failed(self, now: float, jitter: Jitter) -> bool:
        """Whether a storm begins with this failure."""
        self.failures += 1
        self.probing = False
        if self.failures < FAILURES:
            return False
        begins = self.began is None
        self.began = now if self.began is None else self.began
        self.open_until = now + backoff(self.failures - FAILURES + 1, jitter, base=2.0)
        return begins

    def answered(self, now: float) -> float | None:
        """How long the storm had lasted that ends with this answer, if there was one."""
        lasted = None if self.began is None else now - self.began
        self.failures, self.began, self.open_until, self.probing = 0, None, 0.0, False
        return lasted

    def lets_through(self, now: float) -> bool:
        return self.began is None or (now >= self.open_until and not self.probing)

    def sent(self) -> None:
        self.probing = self.began is not None
