"""Provider profile: what the keys of one provider learn together: how it counts, how fast it refuses, when to try more."""

from dataclasses import dataclass, field

from agentos.core.ratelimit.limits import Counting, LearnedLimits, Lengths, Rate

INITIAL_REFUSAL_LATENCY = 0.15  # seconds
REFUSAL_LATENCY_RANGE = (0.05, 2.0)  # seconds
HINT_TOLERANCE = 1.0  # seconds; hints are often rounded to whole seconds
GUARD_CALLS, GUARD_DECAY = (
    100,
    0.8,
)  # the guard shrinks by this factor after this many calls without an early one
MAX_PROBES = 2  # per provider
MAX_START_DIFFERENCE = (
    0.05  # of a fixed window's length; windows that start closer together start at the same time
)
MIN_REFUSED_COUNTED, MAX_REFUSED_COUNTED = 2, 4  # evidence that refused calls count
FIRST_PROBE_GAP = 2.0  # seconds; shorter once a provider is found to open sooner
TRIAL_INTERVAL_RANGE = (40, 90)  # calls of all keys between two trials
FREQUENT_TRIALS = 3  # trials that may fail before they become rarer
TRIAL_COST_WEIGHT = 0.5  # of the newest refused trial in the average
TRIAL_BACKOFF = 1.5  # factor for the interval after each further failed trial
SIMILAR_CALLS = (0.5, 2.0)  # factors within which two numbers of calls are about the same


@dataclass(slots=True)
class ProviderProfile:
    """What is known about one provider, and shared by all its keys.

    `counting` is how it counts known limits. While it is None, windows slide, which is the strictest. One probe finds
    out: a call that a token bucket would admit and a sliding window would not.

    `learned` are the limits found so far, by bucket. A trial is a call beyond a learned limit, which shows whether the
    limit has risen. Trials are so rare that their refusals are a small share of all calls.
    """

    counting: Counting | None = None
    window_start: float = 0.0
    """When one of the fixed windows of the key starts whose windows were found to be fixed."""
    starts_together: bool | None = None
    """Whether the fixed windows of all keys start at the same time; None until a second key has been observed."""
    is_probing_start: bool = False
    refusal_latency: float = INITIAL_REFUSAL_LATENCY
    learned: dict[int, LearnedLimits] = field(default_factory=dict)
    findings: int = 0
    """How often `learned` has changed."""
    shortest_window: float = 0.0
    """Windows up to this length would have opened: found by probes after refusals without a hint."""
    changed_at: float = float("-inf")
    """When the limits of one of its keys were last found to have changed."""
    first_probe_gap: float = FIRST_PROBE_GAP
    """Seconds from a refusal without a hint to the first probe."""
    concurrency_ruled_out: bool = False
    most_admitted: int = 0
    """The most calls that any of its keys had admitted before its first refusal."""
    leader: int = 0
    """The key that explores ahead of the others, if one does."""
    early_shares: dict[Lengths, float] = field(default_factory=dict)
    """How early the next trial may be sent, as a share of the learned length; halved by each refused trial."""
    shortened: dict[Lengths, float] = field(default_factory=dict)
    """By how many seconds learned lengths have turned out to be too long."""
    is_trying_early: bool = False
    guard: float = 0.0
    """Seconds by which windows are extended, because calls have arrived before a known limit had opened."""
    bursts: dict[Rate, float] = field(default_factory=dict)
    """Of known limits that were refused although they were kept: how many calls they admit at once."""
    burst_findings: int = 0
    """How often `bursts` has changed."""
    _calls_since_early: int = 0
    """Calls admitted since one arrived too early, or since the guard was last reduced."""
    _early_findings: int = 0
    """How often `early_shares` or `shortened` have changed."""
    _refused_counted: int = 0
    _failed_trials: int = 0
    _trial_cost: float = 1.0
    """Calls that a refused trial costs on average: the trial itself, and those that its hint delays."""
    _open_trials: int = 0
    _trial_sent_at: float | None = None
    _trial_key: int = 0
    _calls_since_trial: int = 0
    _calls_before_refusal: int | None = None
    _probes: int = 0
    _probe_sent_at: float | None = None

    @property
    def revision(self) -> object:
        """Changes whenever a finding of one key may change when the provider's other keys open."""
        return (
            self.counting,
            self.window_start,
            self.starts_together,
            self.is_probing_start,
            self.refusal_latency,
            self.findings,
            self.shortest_window,
            self.changed_at,
            self.first_probe_gap,
            self.concurrency_ruled_out,
            self.most_admitted,
            self.leader,
            self.is_trying_early,
            self.burst_findings,
            self.guard,
            self._early_findings,
            self._calls_before_refusal,
        )

    # How it counts known limits: sliding window, fixed window or token bucket.

    @property
    def may_probe(self) -> bool:
        return self.counting is None and self._probe_sent_at is None and self._probes < MAX_PROBES

    @property
    def may_probe_start(self) -> bool:
        """Whether a key may send a call to find out when its fixed windows start: only one until two can be compared."""
        return self.starts_together is not None or not self.is_probing_start

    def compare_starts(self, start: float, seconds: float) -> None:
        """Note when the fixed windows of another key start, which are `seconds` long."""
        apart = (start - self.window_start + seconds / 2) % seconds - seconds / 2
        self.starts_together = abs(apart) <= MAX_START_DIFFERENCE * seconds

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

    def classify(self, opens_at: float, sliding_at: float, token_bucket_at: float) -> Counting:
        """Infer the counting from a refusal's hint, by comparing it with what each counting predicts."""
        self._probe_sent_at = None
        if opens_at >= sliding_at - HINT_TOLERANCE:
            self.counting = Counting.SLIDING
        elif opens_at <= token_bucket_at + HINT_TOLERANCE:
            self.counting = Counting.TOKEN_BUCKET
        else:
            self.counting = Counting.FIXED
        return self.counting

    def fall_back_to_sliding(self) -> bool:
        """Return to the strictest counting after a call within the limits was refused; false if already there."""
        if self.counting is None or self.counting is Counting.SLIDING:
            return False
        self.counting = Counting.SLIDING
        return True

    @property
    def counts_refused(self) -> bool:
        """Whether refused calls count towards the limit too."""
        return self._refused_counted >= MIN_REFUSED_COUNTED

    def record_counting(self, evidence: int) -> None:
        """Note evidence that refused calls count, or (negative) that they do not."""
        self._refused_counted = min(MAX_REFUSED_COUNTED, max(0, self._refused_counted + evidence))

    def sliding_lengths(self) -> set[float]:
        """The lengths in seconds of all sliding windows that were learned."""
        limits = (limit for learned in self.learned.values() for limit in learned.limits)
        return {limit.seconds for limit in limits if limit.counting is Counting.SLIDING}

    def fewest_slots(self) -> int | None:
        """The lowest concurrency limit found for any of its keys."""
        slots = [learned.concurrency for learned in self.learned.values() if learned.concurrency is not None]
        return min(slots, default=None)

    # How fast it refuses, and after how many calls.

    def record_refusal_latency(self, seconds: float) -> None:
        low, high = REFUSAL_LATENCY_RANGE
        self.refusal_latency = min(high, max(low, 3 * seconds, 0.9 * self.refusal_latency))

    def record_first_refusal(self, calls: int) -> None:
        """Note after how many calls a key of unknown limits was refused for the first time."""
        self._calls_before_refusal = calls

    def is_refusal_likely(self, calls: int) -> bool:
        """Return whether another key was first refused after about this many calls."""
        low, high = SIMILAR_CALLS
        return self._calls_before_refusal is not None and (
            low * self._calls_before_refusal <= calls <= high * self._calls_before_refusal
        )

    def extend_guard(self, seconds: float, most: float) -> None:
        """Extend the windows of all keys, at most to `most`, because a call has arrived this much too early."""
        self.guard, self._calls_since_early = min(most, self.guard + seconds), 0

    def shrink_guard(self) -> None:
        """Note an admitted call: after many without an early one, less is needed."""
        self._calls_since_early += 1
        if self.guard and self._calls_since_early >= GUARD_CALLS:
            self.guard, self._calls_since_early = self.guard * GUARD_DECAY, 0

    def record_burst(self, rate: Rate, calls: float) -> None:
        """Record how many calls a known limit admits at once, keeping the smallest value measured."""
        if calls < self.bursts.get(rate, rate.amount):
            self.bursts[rate] = calls
            self.burst_findings += 1

    @property
    def refused_by_now(self) -> int:
        """The calls after which a key would have been refused if it had the limit of another one; 0 if that is unknown."""
        return int(SIMILAR_CALLS[1] * (self._calls_before_refusal or 0))

    # How much earlier than learned a call may be sent.

    def record_shortened(self, lengths: Lengths, seconds: float) -> None:
        """Note by how much these lengths have turned out to be too long; 0 if they were right after all."""
        self._early_findings += 1
        self.shortened[lengths] = seconds

    def record_early_share(self, lengths: Lengths, share: float) -> None:
        self._early_findings += 1
        self.early_shares[lengths] = share

    # When a learned limit may be tried: one call at a time, of all keys.

    def record_send(self) -> None:
        self._calls_since_trial += 1

    @property
    def may_try(self) -> bool:
        is_due = self._open_trials > 0 or self._calls_since_trial >= self._trial_interval()
        return is_due and self._trial_sent_at is None

    def _trial_interval(self) -> float:
        low, high = TRIAL_INTERVAL_RANGE
        return max(1.0, self._trial_cost) * min(
            high, low * TRIAL_BACKOFF ** max(0, self._failed_trials - FREQUENT_TRIALS)
        )

    def start_trial(self, now: float, key: int) -> None:
        self._trial_sent_at, self._trial_key, self._calls_since_trial = now, key, 0
        self._open_trials = max(0, self._open_trials - 1)

    def end_trial(self, sent_at: float, key: int) -> bool:
        """Note that the result of the call that `key` sent then is known; return whether it was the trial.

        If several calls were sent at that moment, any of them may count as the trial.
        """
        if (self._trial_sent_at, self._trial_key) != (sent_at, key):
            return False
        self._trial_sent_at = None
        return True

    def record_trial_cost(self, calls: float) -> None:
        """Note how many calls a refused trial has cost, including the trial itself."""
        self._trial_cost += TRIAL_COST_WEIGHT * (calls - self._trial_cost)

    def record_trial(self, *, risen: bool) -> None:
        """Note whether a trial has found more room. If so, all keys may try at once: the provider has changed."""
        if risen:
            self._failed_trials, self._open_trials = 0, len(self.learned)
        else:
            self._failed_trials += 1
