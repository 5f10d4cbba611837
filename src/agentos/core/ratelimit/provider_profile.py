"""Provider profile: how one provider counts and refuses, learned from its answers and shared by all its keys."""

from dataclasses import dataclass
from enum import StrEnum

INITIAL_REFUSAL_LATENCY = 0.15  # seconds
REFUSAL_LATENCY_RANGE = (0.05, 2.0)  # seconds
HINT_TOLERANCE = 1.0  # seconds; hints are often rounded to whole seconds
MAX_PROBES = 2  # per provider
INITIAL_GROWTH = 1.25  # factor by which an estimated rate is raised
GROWTH_RANGE = (1.04, 2.0)  # factors
GROWTH_INTERVAL_RANGE = (16, 4096)  # calls between two raises
ERROR_DECAY = 0.8  # factor for earlier errors when a new one is added
SIMILAR_CALLS = (0.5, 2.0)  # factors within which two numbers of calls are about the same


class Counting(StrEnum):
    """How a provider measures usage against a limit."""

    SLIDING = "sliding"
    FIXED = "fixed"
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - an algorithm, not a secret


@dataclass(frozen=True, slots=True)
class CountingErrors:
    """How far two measurements of one bucket disagree if it counts requests, and if it counts tokens."""

    requests: float
    tokens: float


@dataclass(slots=True)
class ProviderProfile:
    """What is known about one provider, identical for all its keys.

    `counting` is None until it is known; windows then slide, which is the strictest. It is learned from the
    first refusal that says when its limit opens. Where nothing is refused, because limits are kept, one
    probe finds out: a call that a token bucket would admit and a sliding window would not.

    `counts_refused` tells whether refused calls use up the limit too. `growth` and `growth_interval` say how
    far, and after how many calls, an estimated rate is raised (see `RateEstimator`).
    """

    counting: Counting | None = None
    window_start: float = 0.0
    counts_refused: bool = False
    refusal_latency: float = INITIAL_REFUSAL_LATENCY
    growth: float = INITIAL_GROWTH
    growth_interval: int = GROWTH_INTERVAL_RANGE[0]
    _request_error: float = 0.0
    _token_error: float = 0.0
    _calls_before_refusal: int | None = None
    _calls_since_growth: int = 0
    _probes: int = 0
    _probe_sent_at: float | None = None

    # How it counts: sliding window, fixed window or token bucket.

    @property
    def may_probe(self) -> bool:
        return self.counting is None and self._probe_sent_at is None and self._probes < MAX_PROBES

    def start_probe(self, now: float) -> None:
        self._probes += 1
        self._probe_sent_at = now

    def record_admission(self, sent_at: float) -> None:
        """Note an answered call: if it was the probe, the limit has refilled like a token bucket."""
        if self._probe_sent_at == sent_at:
            self._probe_sent_at = None
            self.counting = self.counting or Counting.TOKEN_BUCKET

    def abandon_probe(self, sent_at: float) -> None:
        """End the probe without a finding if it is the call sent at `sent_at`."""
        if self._probe_sent_at == sent_at:
            self._probe_sent_at = None

    def record_probe_refusal(self, sent_at: float) -> bool:
        """Assume a sliding window if this call, refused without a hint, was the probe; return whether it was."""
        if self._probe_sent_at != sent_at:
            return False
        self.counting, self._probe_sent_at = Counting.SLIDING, None
        return True

    def classify(self, opens_at: float, sliding_at: float, token_bucket_at: float) -> None:
        """Infer the counting from a refusal's hint, by comparing it with what each counting predicts."""
        self._probe_sent_at = None
        if opens_at >= sliding_at - HINT_TOLERANCE:
            self.counting = Counting.SLIDING
        elif opens_at <= token_bucket_at + HINT_TOLERANCE:
            self.counting = Counting.TOKEN_BUCKET
        else:
            self.counting, self.window_start = Counting.FIXED, opens_at

    def fall_back_to_sliding(self) -> bool:
        """Return to the strictest counting after a limit was kept and yet refused; false if already there."""
        if self.counting is None or self.counting is Counting.SLIDING:
            return False
        self.counting = Counting.SLIDING
        return True

    def merge(self, counting: Counting, window_start: float) -> None:
        """Take over what another run found out."""
        self.counting, self.window_start = counting, window_start

    # What it counts where it states no limit: requests or tokens.

    @property
    def counts_tokens(self) -> bool:
        """Whether a token limit explains the refusals better than a request limit."""
        return self._token_error < self._request_error

    def record_errors(self, errors: CountingErrors) -> None:
        self._request_error = ERROR_DECAY * self._request_error + errors.requests
        self._token_error = ERROR_DECAY * self._token_error + errors.tokens

    # How fast it refuses, and after how many calls.

    def record_refusal_latency(self, seconds: float) -> None:
        low, high = REFUSAL_LATENCY_RANGE
        self.refusal_latency = min(high, max(low, 3 * seconds, 0.9 * self.refusal_latency))

    def record_first_refusal(self, calls: int) -> None:
        """Note after how many calls a key of unknown rate was refused for the first time."""
        self._calls_before_refusal = calls

    def is_refusal_likely(self, calls: int) -> bool:
        """Return whether another key was first refused after about this many calls."""
        low, high = SIMILAR_CALLS
        return self._calls_before_refusal is not None and (
            low * self._calls_before_refusal <= calls <= high * self._calls_before_refusal
        )

    # When an estimated rate may be raised: rarely enough that one refusal is a small share of all calls.

    def record_send(self) -> None:
        self._calls_since_growth += 1

    @property
    def may_grow(self) -> bool:
        return self._calls_since_growth >= self.growth_interval

    def record_growth(self) -> None:
        self._calls_since_growth = 0

    def confirm_growth(self) -> None:
        """Take a larger step next time: the last one was not refused."""
        self.growth = min(GROWTH_RANGE[1], 1 + (self.growth - 1) * 2)

    def revoke_growth(self) -> None:
        """Take a smaller step next time, and later: the last one was refused."""
        self.growth = max(GROWTH_RANGE[0], 1 + (self.growth - 1) / 2)
        self.growth_interval = min(self.growth_interval * 2, GROWTH_INTERVAL_RANGE[1])
