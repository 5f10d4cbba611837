"""Limit estimator: finds limits that the provider does not state, from what it admits and refuses."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentos.core.ratelimit.limit_fitting import WINDOW_LENGTHS, Evidence, ObservedRefusal, fit_limits
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits
from agentos.core.ratelimit.provider_profile import FIRST_PROBE_GAP, ProviderProfile
from agentos.core.ratelimit.windows import NEVER, Reservation, slack_of

# How many calls may be unconfirmed (sent, not yet known to be admitted): a base, plus one per so many admitted.
# FIRST_* applies before the first refusal, LATER_* after it.
FIRST_UNCONFIRMED, FIRST_CALLS_PER_UNCONFIRMED = 3, 8
LATER_UNCONFIRMED, LATER_CALLS_PER_UNCONFIRMED = 1, 16
UNSURE_UNCONFIRMED = 2  # the base while obeying learned limits that no provider hint has confirmed
SPARE_CALLS = 2.0  # a learned limit has risen if more calls than this are admitted beyond it
KEPT_REFUSALS = 12
OPENING_TOLERANCE = 0.02  # seconds; openings closer than this are treated as equal
MAX_UNEXPLAINED = 6  # unexplained refusals in a row, despite hints, before falling back to an even pace
MIN_AVERAGED, AVERAGED_CALLS = 6, 60  # calls whose average rate is kept where nothing else helps
PACE_GROWTH, MAX_PACE_GROWTH = 1.03, 1.25  # factors; doubled as long as nothing is refused
MIN_PACE_GROWTH = 1.008  # factor while the pace that is refused stays about the same
NEAR_CEILING = 1.12  # factor within which two paces are about the same
UNTRIED_PACE_GROWTH = 1.12  # factor until a call is refused at an even pace
CALLS_PER_GROWTH = 12
PACE_STEP_BACK = 0.93  # factor after a refusal
MIN_PROBE_GAP = 0.02  # seconds
PROBE_GAP_GROWTH = 1.5  # factor for each probe that was refused
MAX_GAP_GROWTHS = 50  # by then a gap has its greatest length; a much larger power would overflow
MAX_PROBE_GAP = 60.0  # seconds
FOLLOWER_DELAY = 0.25  # seconds by which the other keys probe later, so that they learn from the first
USUAL_LENGTHS = tuple(seconds for seconds, cost in WINDOW_LENGTHS.items() if cost < 1.0)
FIRST_EARLY_SHARE, MIN_EARLY_SHARE = 0.4, 0.06  # of a window's length, by which a trial may come too early
MAX_FOLLOWED = 8  # steps by which another key has shortened a length
EXACT_LENGTH = 6.0  # seconds; the length of a shorter window is not known exactly from hints in whole seconds
EARLY_INTERVAL, LATE_EARLY_INTERVAL = 6, 150  # calls of a key between two early trials
MAX_CAUTIOUS_CALLS = 100  # sent one by one after the limits of another key have changed
HISTORY_SIZE = 2000  # calls


@dataclass(slots=True)
class LimitEstimator:
    """Finds the limits of one bucket and model for which none is configured or stated.

    It either explores or obeys. While exploring, it enforces no limit; it only caps the unconfirmed calls (sent, not yet
    known to be admitted), and raises the cap as calls are admitted. After a refusal, it looks for the limits that best
    fit the history (`fit_limits`) and obeys them, as `learned`. If none fit, it resumes exploring once the provider
    admits calls again. Now and then it sends one call more than the limit allows (a trial): if that is admitted, the
    limit may have risen, and it explores again.

    A refusal without a hint is followed by probes, one call at a time, at moments when a window of a usual length
    would open, or as soon as another call has ended. The first one admitted stands in for the hint.
    """

    history: Sequence[Reservation]
    """All calls of the bucket in order, as its limiter keeps them."""
    profile: ProviderProfile = field(default_factory=ProviderProfile)
    learned: LearnedLimits | None = None
    exploring: bool = True
    probing: bool = False
    pace: float | None = None
    """Calls a second, while calls are merely sent evenly."""
    _certain_since: float = NEVER
    """What was admitted since is allowed by the present limits; infinite if they may have changed meanwhile."""
    _early_trial: Reservation | None = None
    _calls_since_early: int = 0
    _lengthier: LearnedLimits | None = None
    """The limits before the last early trial that was admitted, in case it was admitted by chance."""
    _unconfirmed: deque[Reservation] = field(default_factory=deque)
    _confirmed: int = 0
    _explored_since: float | None = None
    _has_refused: bool = False
    _is_trying: bool = False
    """Whether it explores after an admitted trial, and has not found much more room yet."""
    _refusals: deque[ObservedRefusal] = field(default_factory=lambda: deque(maxlen=KEPT_REFUSALS))
    _pace_growth: float = PACE_GROWTH
    _base_growth: float = PACE_GROWTH
    _pace_ceiling: float = 0.0
    """The pace at which a call was last refused."""
    _unexplained: int = 0
    _paced_since: float = float("-inf")
    _refused_probes: int = 0
    _probe_gap: float = 0.0
    _closed_since: float = 0.0
    _findings: int = 0
    _last_length: float = 0.0
    """The longest window of the limits learned last."""
    _probe_slots: int = 0
    """Calls in flight at the last refusal: with fewer, a probe is due at once, unless concurrency is ruled out."""

    # Admission while no limit is obeyed.

    def next_allowed_at(self, now: float, in_flight: int) -> float:
        """When the next call may be sent. Unconfirmed calls are limited, so that few are refused at the same time."""
        if self._unconfirmed:
            self._confirm(now)
        if self.probing:
            return max(now, self._probe_at(in_flight))
        if self.learned is None and self._refusals and self._findings != self.profile.findings:
            # What another key has found may explain the refusals of this one, too.
            self._fit(now)
        if self._findings != self.profile.findings:
            self._findings = self.profile.findings
            self._follow_shortened()
        if not self._unconfirmed or len(self._unconfirmed) < self._allowed_unconfirmed(in_flight):
            return now
        return self._unconfirmed[0].at + self.profile.refusal_latency

    @property
    def _is_outdated(self) -> bool:
        """Whether another key was found to have new limits since: those of this one may have changed too."""
        return (
            self.learned is not None
            and self.learned.since < self.profile.changed_at
            and self._confirmed < MAX_CAUTIOUS_CALLS
        )

    def _allowed_unconfirmed(self, in_flight: int) -> float:
        if not self.exploring:
            if self._is_outdated:
                return 1
            is_sure = self.hinted or (self.learned is not None and self.learned.concurrency is not None)
            return NEVER if is_sure else UNSURE_UNCONFIRMED + self._confirmed // LATER_CALLS_PER_UNCONFIRMED
        slots = self.profile.fewest_slots()
        if slots is not None and in_flight >= slots:
            return 1
        if self._has_refused:
            return LATER_UNCONFIRMED + self._confirmed // LATER_CALLS_PER_UNCONFIRMED
        ahead = self.profile.most_admitted - self._confirmed
        if ahead > 0:
            return ahead
        if self.profile.leader not in (0, id(self)) or self.profile.is_refusal_likely(
            self._confirmed + len(self._unconfirmed)
        ):
            return 1
        self.profile.leader = id(self)
        return (
            FIRST_UNCONFIRMED + self._confirmed // FIRST_CALLS_PER_UNCONFIRMED + (self._confirmed // 15) ** 2
        )

    def _probe_at(self, in_flight: int) -> float:
        if self._unconfirmed:
            return self._unconfirmed[0].at + self.profile.refusal_latency
        if in_flight < self._probe_slots and not self.profile.concurrency_ruled_out:
            return 0.0
        newest = self._refusals[-1]
        refused_at, start = newest.known_at, self._explored_since or newest.call.at
        first_gap = self._probe_gap or self.profile.first_probe_gap
        longest = self._max_probe_gap(refused_at - self._closed_since)
        gap = min(longest, first_gap * PROBE_GAP_GROWTH ** min(self._refused_probes, MAX_GAP_GROWTHS))
        delay = FOLLOWER_DELAY if self.profile.shortest_window > refused_at - start else 0.0
        for seconds in USUAL_LENGTHS:
            opens = start + seconds + slack_of(seconds)
            if (
                seconds > self.profile.shortest_window
                and refused_at + gap / 2 <= opens <= refused_at + 2 * gap
            ):
                return opens + delay
        return refused_at + gap

    def _max_probe_gap(self, closed: float) -> float:
        """Where windows of a certain length were found before, the next one cannot be far, unless that is over already.

        A limit that stays closed for longer has changed, or another key of the same quota uses all of it up.
        """
        if not self._last_length:
            return MAX_PROBE_GAP
        return min(MAX_PROBE_GAP, max(FIRST_PROBE_GAP, self._last_length / 4, closed / 4))

    # What became of the calls.

    def record_send(self, call: Reservation) -> None:
        if self._explored_since is None:
            self._explored_since = call.at
        self._unconfirmed.append(call)
        self._calls_since_early += 1
        if call.early:
            self._early_trial, self._calls_since_early = call, 0
            self.profile.is_trying_early = True
        self.profile.record_send()

    def record_answer(self, call: Reservation, now: float) -> None:
        if call in self._unconfirmed:
            self._unconfirmed.remove(call)
            self._record_admission(call, now)

    def _confirm(self, now: float) -> None:
        """Count calls as admitted once they have gone unrefused for longer than a refusal takes."""
        while self._unconfirmed and self._unconfirmed[0].at <= now - self.profile.refusal_latency:
            self._record_admission(self._unconfirmed.popleft(), now)

    def _record_admission(self, call: Reservation, now: float) -> None:
        self._confirmed += 1
        if not self._has_refused and self._confirmed > self.profile.most_admitted:
            self.profile.most_admitted, self.profile.leader = self._confirmed, id(self)
        if self.pace is not None and self._confirmed >= CALLS_PER_GROWTH:
            self._pace(self._pace_growth * self.pace, now)
            if self.pace > NEAR_CEILING * self._pace_ceiling:
                self._pace_growth = min(MAX_PACE_GROWTH, 1 + 2 * (self._pace_growth - 1))
        if self._is_trying and self._confirmed > self._spare_calls(now):
            self.profile.record_trial(risen=True)
            self._is_trying = False
        if call is self._early_trial:
            self._early_trial = None
            self.profile.is_trying_early = False
            self._shorten(call.early)
        elif self.profile.end_trial(call.at, id(self)):
            self._explore(call.at)
            self._is_trying = True
        if self._refusals and call.at > self._refusals[-1].known_at:
            for refusal in self._refusals:
                refusal.opens_until = min(refusal.opens_until, call.at + self.profile.refusal_latency / 3)
            if self.probing:
                self._end_probing(call, now)

    def _end_probing(self, call: Reservation, now: float) -> None:
        """Learn from the first call that was admitted again, and how long to wait next time."""
        closed = call.at - self._closed_since
        self._probe_gap = min(MAX_PROBE_GAP, max(MIN_PROBE_GAP, closed / 2))
        self.profile.first_probe_gap = min(self.profile.first_probe_gap, self._probe_gap)
        self.probing, self._refused_probes = False, 0
        self._fit(now)

    def _spare_calls(self, now: float) -> float:
        """How many calls can be admitted after a trial without proving that a limit has risen."""
        limits = [
            limit
            for limit in (self.learned.limits if self.learned else ())
            if limit.dimension is Dimension.REQUESTS
        ]
        elapsed = now - (self._explored_since or now)
        admitted = [elapsed * limit.rate.per_second for limit in limits]
        # Buckets save up what is not used.
        saved = [limit.amount for limit in limits if limit.counting is Counting.TOKEN_BUCKET]
        return max([SPARE_CALLS, *saved]) + max(admitted, default=0.0)

    # Early trials: windows whose length is a guess are shortened step by step, by one key for all of the provider.

    @property
    def may_try_early(self) -> bool:
        """Whether a call may be sent a little earlier than the learned limits allow, because their length is a guess."""
        if not self._is_obeying or self._early_trial is not None or self._is_exact:
            return False
        interval = EARLY_INTERVAL if self.early_share > MIN_EARLY_SHARE else LATE_EARLY_INTERVAL
        return self._calls_since_early >= interval and self.profile.may_try_early

    @property
    def early_share(self) -> float:
        """By which share of a window's length the next trial may come too early."""
        assert self.learned is not None
        return max(MIN_EARLY_SHARE, self.profile.early_shares.get(self.learned.lengths, FIRST_EARLY_SHARE))

    @property
    def _is_exact(self) -> bool:
        """Whether the provider's hints tell the length of the window well enough."""
        if self.learned is None or any(
            limit.counting is Counting.FIXED or limit.amount > 1 for limit in self.learned.limits
        ):
            # Of several calls, one that is admitted early may as well mean that the limit is higher.
            return True
        if not self._refusals or not self._refusals[-1].hinted:
            return not self._refusals
        shortest = min((limit.length for limit in self.learned.limits), default=0.0)
        return not self._refusals[-1].is_rounded or shortest >= EXACT_LENGTH

    def _shorten(self, early: float) -> None:
        if self.learned is None:
            return
        if not self.learned.limits:
            self._explore(self._refusals[-1].known_at if self._refusals else None)
            return
        share, before = self.early_share, self.learned
        self._lengthier = before
        self._obey(replace(before, limits=tuple(limit.shortened(early) for limit in before.limits)))
        self.profile.record_shortened(before.lengths, early)
        self.profile.record_early_share(self.learned.lengths, share)

    def _follow_shortened(self) -> None:
        """Take over the length that another key has found for windows of the same length."""
        for _ in range(MAX_FOLLOWED):
            early = self.profile.shortened.get(self.learned.lengths) if self.learned else None
            if self.learned is None or not early:
                return
            self._lengthier = self.learned
            self._obey(
                replace(self.learned, limits=tuple(one.shortened(early) for one in self.learned.limits))
            )

    def _lengthen(self) -> None:
        """Return to the length before the last early trial: it was admitted by chance."""
        if self._lengthier is not None:
            self.profile.record_shortened(self._lengthier.lengths, 0.0)
            self._obey(self._lengthier)
            self._lengthier = None
            self._halve_early_share()

    def _halve_early_share(self) -> None:
        if self.learned is not None:
            self.profile.record_early_share(self.learned.lengths, self.early_share / 2)

    def _obey(self, learned: LearnedLimits) -> None:
        self.learned = self.profile.learned[id(self)] = learned
        self.profile.findings += 1

    def drop(self, call: Reservation) -> None:
        """Forget a call that will never be known to be admitted or refused."""
        if call is self._early_trial:
            self._early_trial = None
            self.profile.is_trying_early = False
        if call in self._unconfirmed:
            self._unconfirmed.remove(call)
        self.profile.end_trial(call.at, id(self))

    def record_refusal(self, call: Reservation, now: float, hint: float | None, in_flight: int) -> None:
        """Explain a refusal, and obey what explains it."""
        self._end_exploration(call, now)
        refusal = ObservedRefusal.of(call, now, in_flight, hint)
        last = self._refusals[-1] if self._refusals else None
        repeated = last is not None and call.at <= last.known_at
        if last is not None and hint is not None and last.hinted:
            self._check_counting(refusal, last, repeated=repeated)
        if repeated:
            # One event, as long as nothing was sent since: the later refusal knows better what was admitted.
            self._refusals.pop()
        self._refusals.append(refusal)
        if call is self._early_trial:
            self._early_trial = None
            self.profile.is_trying_early = False
            self._halve_early_share()
            self.exploring = False
        elif self._lengthier is not None and self._is_obeying and not repeated:
            self._lengthen()
        elif hint is not None:
            self._fit(now)
        elif repeated:
            self._probe_slots = min(self._probe_slots, in_flight)
        elif self.pace is not None:
            self._step_back(call, now)
        elif self._expects(call, in_flight):
            self.exploring = False
        else:
            self._start_probing(refusal)

    def _end_exploration(self, call: Reservation, now: float) -> None:
        """Note what a refusal means for this exploration or trial, and for the other keys."""
        is_certain = self.exploring and self._explored_since is not None
        if not self.probing:
            self._certain_since = (self._explored_since or 0.0) if is_certain else NEVER
        self.profile.record_refusal_latency(now - call.at)
        if call in self._unconfirmed:
            self._unconfirmed.remove(call)
        if not self._has_refused:
            self.profile.record_first_refusal(self._confirmed + len(self._unconfirmed))
            self._has_refused = True
        is_trial = self.profile.end_trial(call.at, id(self))
        call.is_trial = call.is_trial or is_trial
        if is_trial or self._is_trying:
            self.profile.record_trial(risen=False)
            self._is_trying = False
        if self.profile.leader == id(self):
            self.profile.leader = 0

    def _expects(self, call: Reservation, in_flight: int) -> bool:
        """Whether the obeyed limits explain that this call was refused."""
        if self.learned is None:
            return False
        slots = self.learned.concurrency
        return call.is_trial or call.at <= self.learned.since or (slots is not None and in_flight >= slots)

    def _step_back(self, call: Reservation, now: float) -> None:
        if self.pace is not None and call.at > self._paced_since:
            is_known = self._pace_ceiling / NEAR_CEILING < self.pace < NEAR_CEILING * self._pace_ceiling
            self._base_growth = (
                max(MIN_PACE_GROWTH, 1 + (self._base_growth - 1) / 2) if is_known else PACE_GROWTH
            )
            self._paced_since, self._pace_growth, self._pace_ceiling = now, self._base_growth, self.pace
            self._pace(PACE_STEP_BACK * self.pace, now)

    def _check_counting(self, refusal: ObservedRefusal, last: ObservedRefusal, *, repeated: bool) -> None:
        """Find out whether refused calls count against the limit: if so, a second refusal hints at a later opening."""
        if refusal.call.cost.input_tokens != last.call.cost.input_tokens:
            return
        if repeated:
            moved = abs(refusal.opens_at - last.opens_at) > OPENING_TOLERANCE
            self.profile.record_counting(2 if moved else -2)
        elif refusal.call.at > last.opens_at - OPENING_TOLERANCE and not self._admitted_since(last):
            self.profile.record_counting(1)

    def _admitted_since(self, last: ObservedRefusal) -> bool:
        return any(call.at > last.known_at and not call.refused for call in reversed(self.history))

    def _start_probing(self, refusal: ObservedRefusal) -> None:
        for earlier in self._refusals:
            if earlier.opens_until == NEVER:
                earlier.opens_from = max(earlier.opens_from, refusal.call.at)
        if self.probing:
            self._refused_probes += 1
            if refusal.in_flight < self._probe_slots:
                self.profile.concurrency_ruled_out = True
            start = self._explored_since or refusal.call.at
            self.profile.shortest_window = max(self.profile.shortest_window, refusal.call.at - start)
        else:
            self._closed_since = refusal.known_at
        self._probe_slots = refusal.in_flight
        if self.learned is not None and self.pace is None:
            self._last_length = max((limit.length for limit in self.learned.limits), default=0.0)
        self.probing, self.exploring, self.learned = True, False, None

    def _fit(self, now: float) -> None:
        known = [learned for owner, learned in self.profile.learned.items() if owner != id(self)]
        if self.learned is not None:
            known.append(self.learned)
        self._findings = self.profile.findings
        fitted = self._fitted(known, now, counts_refused=self.profile.counts_refused)
        if fitted is None and self.profile.counts_refused:
            fitted = self._fitted(known, now, counts_refused=False)
            if fitted is not None:
                self.profile.record_counting(-2)
        if fitted is not None and fitted.changed:
            # Earlier refusals were those of another limit.
            self._refusals = deque([self._refusals[-1]], maxlen=KEPT_REFUSALS)
        if fitted is None:
            self._go_on_unexplained(now)
            return
        self._unexplained = 0
        self.pace = None
        if fitted.same_as(self.learned) and self.learned:
            fitted = LearnedLimits(fitted.limits, fitted.concurrency, fitted.refusals, self.learned.since)
        elif self.learned is not None:
            self.profile.changed_at, self._confirmed = now, 0
        if not fitted.same_as(self.learned):
            self.profile.findings += 1
        if not fitted.same_as(self.learned):
            self._lengthier = None
        self.learned, self.exploring = fitted, False
        self.profile.learned[id(self)] = fitted
        self.profile.shortest_window = 0.0

    def _fitted(
        self, known: Sequence[LearnedLimits], now: float, *, counts_refused: bool
    ) -> LearnedLimits | None:
        evidence = Evidence.of(
            self.history,
            self._refusals,
            counts_refused=counts_refused,
            certain_since=self._certain_since,
        )
        return fit_limits(evidence, known, now)

    def _go_on_unexplained(self, now: float) -> None:
        """Explore a few times more; then send evenly at the rate that was admitted so far."""
        if self._is_obeying and self._refusals[-1].call.is_trial:
            # Only its hint is not explained; that it would be refused was to be expected.
            return
        self._unexplained += 1
        if self.pace is not None:
            self._step_back(self._refusals[-1].call, now)
        elif (not self.hinted or self._unexplained > MAX_UNEXPLAINED) and (rate := self._average_rate(now)):
            self._pace_growth = UNTRIED_PACE_GROWTH
            self._pace(rate, now)
        elif not self.exploring:
            self._explore(None)

    # Pacing, where neither hints nor hypotheses help.

    def _pace(self, per_second: float, now: float) -> None:
        """Send evenly at this rate: that passes every limiter."""
        self.pace = per_second
        limit = LearnedLimit(Dimension.REQUESTS, Counting.TOKEN_BUCKET, 1.0, 1.0 / per_second)
        since = self.learned.since if self.learned else now
        self.learned, self.exploring, self.probing, self._confirmed = (
            LearnedLimits((limit,), since=since),
            False,
            False,
            0,
        )

    def _average_rate(self, now: float) -> float | None:
        admitted = [call.at for call in self.history if not call.refused][-AVERAGED_CALLS:]
        if len(admitted) < MIN_AVERAGED or now <= admitted[0]:
            return None
        return len(admitted) / (now - admitted[0])

    def _explore(self, since: float | None) -> None:
        self.exploring, self.probing = True, False
        self._confirmed, self._explored_since = 0, since

    # Trials.

    @property
    def hinted(self) -> bool:
        return not self._refusals or self._refusals[-1].hinted

    @property
    def may_try(self) -> bool:
        return self._is_obeying and self.profile.may_try

    @property
    def _is_obeying(self) -> bool:
        return self.learned is not None and not self.exploring and self.pace is None

    def forget(self) -> None:
        """Take back what the provider's other keys were told."""
        self.profile.learned.pop(id(self), None)

    def merge(self, learned: LearnedLimits) -> None:
        """Take over what another run has learned."""
        self.learned, self.exploring, self.probing = learned, False, False
        self._has_refused = True
        self.profile.learned[id(self)] = learned
