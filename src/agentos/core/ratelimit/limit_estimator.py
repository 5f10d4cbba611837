"""Limit estimator: finds limits that the provider does not state, from what it admits and refuses."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field

from agentos.core.ratelimit.adaptive_pace import AdaptivePace
from agentos.core.ratelimit.early_trials import EarlyTrials
from agentos.core.ratelimit.limit_evidence import ROUNDING, Evidence, ObservedRefusal, sizes_vary
from agentos.core.ratelimit.limit_fitting import fit_limits
from agentos.core.ratelimit.limit_probes import LimitProbes
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits
from agentos.core.ratelimit.provider_profile import ProviderProfile
from agentos.core.ratelimit.unconfirmed_calls import UnconfirmedCalls
from agentos.core.ratelimit.windows import NEVER, Reservation

SPARE_CALLS = 2.0  # a learned limit has risen if more calls than this are admitted beyond it
KEPT_REFUSALS = 12
# The limits are wrong if this many calls that they allow were refused, among this many admitted ones.
MAX_SURPRISES, SURPRISE_CALLS = 4, 100
OPENING_TOLERANCE = 0.02  # seconds; openings closer than this are treated as equal
MAX_UNEXPLAINED = 6  # unexplained refusals in a row, despite hints, before falling back to an even pace
MIN_AVERAGED, AVERAGED_CALLS = (
    6,
    60,
)  # calls, at least and at most, whose average rate an even pace starts with
MIN_REFUSALS_PACED = 6  # refusals that limits have to explain to be obeyed instead of an even pace
MAX_CAUTIOUS_CALLS = 100  # calls sent one by one after the limits of another key have changed


@dataclass(slots=True)
class LimitEstimator:
    """Finds the limits of one bucket and model for which none is configured or stated.

    It either explores or obeys. While exploring, it enforces no limit; it only caps the unconfirmed calls (sent, not yet
    known to be admitted), and raises the cap as calls are admitted. After a refusal, it looks for the limits that best
    fit the history (`fit_limits`) and obeys them, as `learned`. If none fit, it resumes exploring once the provider
    admits calls again. Now and then it sends one call more than the limit allows (a trial): if that is admitted, the
    limit may have risen, and it explores again.

    A refusal without a hint is followed by `LimitProbes`, one call at a time. The first one admitted stands in for the
    hint. Where nothing explains the refusals, or calls that the learned limits allow keep being refused, calls are sent
    at an `AdaptivePace`.
    """

    history: Sequence[Reservation]
    """All calls of the bucket in order, as its limiter keeps them."""
    shared_profile: InitVar[ProviderProfile | None] = None
    profile: ProviderProfile = field(init=False)
    learned: LearnedLimits | None = None
    exploring: bool = True
    probing: bool = False
    _pace: AdaptivePace | None = None
    """Set while calls are merely sent evenly."""
    _unconfirmed: UnconfirmedCalls = field(init=False)
    _probes: LimitProbes = field(init=False)
    _early: EarlyTrials = field(init=False)
    _certain_since: float = NEVER
    """The present limits allow everything admitted since then; infinite if they may have changed since."""
    _explored_since: float | None = None
    _is_trying: bool = False
    """Whether it explores after an admitted trial, and has not found much more room yet."""
    explores_beyond: bool = False
    """Whether it explores beyond the learned limits: calls within them need no confirmation."""
    _refusals: deque[ObservedRefusal] = field(default_factory=lambda: deque(maxlen=KEPT_REFUSALS))
    _outdated: Sequence[ObservedRefusal] = ()
    """Refusals before a change that the newest one shows: perhaps a call refused together with it shows none."""
    _considered: ObservedRefusal | None = None
    """The newest refusal when an explanation was last looked for."""
    _unexplained: int = 0
    _findings: int = 0
    _admitted: int = 0
    _surprises: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_SURPRISES))
    """How many calls had been admitted at each of the latest refusals of calls that the learned limits allowed."""

    def __post_init__(self, shared_profile: ProviderProfile | None) -> None:
        self.profile = shared_profile or ProviderProfile()
        self._unconfirmed = UnconfirmedCalls(self.profile)
        self._probes = LimitProbes(self.profile)
        self._early = EarlyTrials(self.profile)

    # Admission while no limit is obeyed.

    def next_allowed_at(self, now: float, in_flight: int) -> float:
        """When the next call may be sent. Unconfirmed calls are limited, so that few are refused at the same time."""
        while (call := self._unconfirmed.next_confirmed(now)) is not None:
            self._record_admission(call, now)
        if self.probing:
            return max(now, self._probe_at(in_flight))
        if self.learned is None and self._refusals and self._findings != self.profile.findings:
            # What another key has found may also explain the refusals of this one.
            self._fit(now)
        if self._findings != self.profile.findings:
            self._findings = self.profile.findings
            self._follow_shortened()
        unconfirmed = len(self._unconfirmed)
        if not unconfirmed or unconfirmed < self._allowed_unconfirmed(in_flight):
            return now
        return self._unconfirmed.confirmed_at

    @property
    def _is_outdated(self) -> bool:
        """Whether the limits of another key have changed since: those of this one may have changed too."""
        return (
            self.learned is not None
            and self._pace is None
            and self.learned.since < self.profile.changed_at
            and self._unconfirmed.confirmed < MAX_CAUTIOUS_CALLS
        )

    def _allowed_unconfirmed(self, in_flight: int) -> float:
        if self.exploring:
            return self._unconfirmed.cap_while_exploring(in_flight, id(self))
        if self._is_outdated:
            return 1
        is_sure = self.hinted or (self.learned is not None and self.learned.concurrency is not None)
        return NEVER if is_sure else self._unconfirmed.cap_while_unsure()

    def _probe_at(self, in_flight: int) -> float:
        if len(self._unconfirmed):
            return self._unconfirmed.confirmed_at
        newest = self._refusals[-1]
        started_at = self._explored_since or newest.call.at
        return self._probes.next_at(newest.known_at, started_at, self._filled_at(started_at), in_flight)

    def _filled_at(self, started_at: float) -> float:
        """When the last call that may have to leave the window first was sent, if calls differ in size."""
        admitted = (call for call in reversed(self.history) if not call.refused)
        latest = list(itertools.takewhile(lambda call: call.at >= started_at, admitted))
        sizes = [call.cost.amount(Dimension.TOKENS) for call in latest]
        return latest[0].at if sizes and sizes_vary(sizes) else started_at

    # Results of the calls.

    def record_send(self, call: Reservation) -> None:
        if self._explored_since is None:
            self._explored_since = call.at
        self._unconfirmed.add(call)
        self._early.record_send(call)
        self.profile.record_send()

    def record_answer(self, call: Reservation, now: float) -> None:
        if self._unconfirmed.remove(call):
            self._record_admission(call, now)

    def _record_admission(self, call: Reservation, now: float) -> None:
        self._admitted += 1
        self._unconfirmed.record_admission(id(self))
        if self._pace is not None and self._pace.record_admission():
            self._obey_pace(now)
        if self._is_trying and self._unconfirmed.confirmed > self._spare_calls(now):
            self.profile.record_trial(risen=True)
            self._is_trying = False
        if self._early.end(call):
            self._shorten(call.early)
        elif self.profile.end_trial(call.at, id(self)):
            self._explore(call.at)
            self._is_trying = True
        if self._refusals and call.at > self._refusals[-1].known_at:
            for refusal in self._refusals:
                refusal.opens_until = min(refusal.opens_until, call.at + self.profile.refusal_latency / 3)
            if self.probing:
                self._probes.end(call.at)
                self.probing = False
                self._fit(now)
            elif self._pace is not None and self._refusals[-1] is not self._considered:
                # Calls admitted after a refusal show when its limit opened: perhaps it can be explained now.
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
        # Token buckets save up unused capacity.
        saved = [limit.amount for limit in limits if limit.counting is Counting.TOKEN_BUCKET]
        return max([SPARE_CALLS, *saved]) + max(admitted, default=0.0)

    def drop(self, call: Reservation) -> None:
        """Forget a call that will never be known to be admitted or refused."""
        self._early.end(call)
        self._unconfirmed.remove(call)
        self.profile.end_trial(call.at, id(self))

    def record_refusal(self, call: Reservation, now: float, hint: float | None, in_flight: int) -> None:
        """Look for limits that explain a refusal, and enforce them."""
        is_early, was_allowed = self._early.end(call), self._was_allowed(call)
        before = self.learned if self._is_trying else None
        self._end_exploration(call, now)
        refusal = ObservedRefusal.of(call, now, in_flight, hint)
        repeated = self._keep(refusal)
        if was_allowed and not repeated and not call.is_trial:
            self._surprises.append(self._admitted)
        if is_early:
            if self.learned is not None:
                self._early.halve_step(self.learned)
            self.exploring = False
        elif self._early.previous is not None and self._is_obeying and not repeated and not call.is_trial:
            self._obey(self._early.lengthened())
        elif hint is not None:
            self._fit(now)
        elif repeated:
            self._probes.slots = min(self._probes.slots, in_flight)
        elif self._pace is not None:
            self._step_back(call, now)
        elif self._expects(call, in_flight):
            self.exploring = False
        else:
            self._start_probing(refusal)
        if before is not None and self.learned is not None and self.learned.exceeds(before):
            self.profile.record_trial(risen=True)

    def _keep(self, refusal: ObservedRefusal) -> bool:
        """Keep the refusal; return whether its call was sent before the last refusal was known."""
        last = self._refusals[-1] if self._refusals else None
        repeated = last is not None and refusal.call.at <= last.known_at
        if last is not None and refusal.hinted and last.hinted:
            self._check_counting(refusal, last, repeated=repeated)
        if repeated:
            # If nothing was sent in between, both are one event, and the later one knows more about what was admitted.
            self._refusals.pop()
            self._refusals.extend(self._outdated)
        self._outdated = ()
        self._refusals.append(refusal)
        return repeated

    def _was_allowed(self, call: Reservation) -> bool:
        """Whether the learned limits allowed this call."""
        since = self.learned.since if self.learned else NEVER
        return self._is_obeying and not call.is_trial and not call.early and call.at > since

    def _end_exploration(self, call: Reservation, now: float) -> None:
        """Note the consequences of a refusal for this exploration or trial, and for the other keys."""
        is_certain = self.exploring and self._explored_since is not None
        self.explores_beyond = False
        if not self.probing:
            self._certain_since = (self._explored_since or 0.0) if is_certain else NEVER
        self.profile.record_refusal_latency(now - call.at)
        self._unconfirmed.record_refusal(call, id(self))
        is_trial = self.profile.end_trial(call.at, id(self))
        call.is_trial = call.is_trial or is_trial
        if is_trial or self._is_trying:
            self.profile.record_trial(risen=False)
            self._is_trying = False

    def _expects(self, call: Reservation, in_flight: int) -> bool:
        """Whether the obeyed limits explain that this call was refused."""
        if self.learned is None:
            return False
        if call.is_trial or call.at <= self.learned.since:
            return True
        slots = self.learned.concurrency
        return slots is not None and in_flight - len(self._unconfirmed) <= slots <= in_flight

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
            # A larger call may be refused while a smaller one would be admitted.
            if earlier.opens_until == NEVER and refusal.call.cost.within(earlier.call.cost):
                earlier.opens_from = max(earlier.opens_from, refusal.call.at)
        if self.probing:
            start = self._explored_since or refusal.call.at
            self._probes.record_refusal(refusal.call.at, start, refusal.in_flight)
        else:
            self._probes.start(refusal.known_at, refusal.in_flight)
        if self.learned is not None:
            self._probes.last_length = max((limit.length for limit in self.learned.limits), default=0.0)
        self.probing, self.exploring, self.learned = True, False, None

    # What explains the refusals.

    def _fit(self, now: float) -> None:
        known = list(self.profile.learned.values())
        if self.learned is not None and self.learned not in known:
            known.append(self.learned)
        self._findings, self._considered = self.profile.findings, self._refusals[-1]
        fitted = self._fitted(known, now, counts_refused=self.profile.counts_refused)
        if fitted is None and self.profile.counts_refused:
            fitted = self._fitted(known, now, counts_refused=False)
            if fitted is not None:
                self.profile.record_counting(-2)
        if fitted is not None and fitted.changed:
            # Earlier refusals were those of another limit.
            *self._outdated, newest = self._refusals
            self._refusals = deque([newest], maxlen=KEPT_REFUSALS)
        if fitted is None:
            self._handle_unexplained(now)
        elif self._pace is not None and not self._is_convincing(fitted):
            self._step_back(self._refusals[-1].call, now)
        elif self._is_surprised and not self._narrows(fitted) and self._send_evenly(now):
            self._surprises.clear()
        else:
            self._adopt(fitted, now)

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

    def _is_convincing(self, fitted: LearnedLimits) -> bool:
        """Whether limits explain enough to give up an even pace for them."""
        is_exact = not self._refusals[-1].is_rounded
        return is_exact and not fitted.changed and fitted.refusals >= MIN_REFUSALS_PACED

    @property
    def _is_surprised(self) -> bool:
        """Whether limits that were thought to be known were refused again and again."""
        return len(self._surprises) == MAX_SURPRISES and self._surprises[0] > self._admitted - SURPRISE_CALLS

    def _narrows(self, fitted: LearnedLimits) -> bool:
        """Whether a token bucket whose hints show nothing was found again: each refusal narrows down its rate."""
        before = self.learned.limits if self.learned else ()
        countings = {limit.counting for limit in (*before, *fitted.limits)}
        return self._refusals[-1].is_rounded and countings == {Counting.TOKEN_BUCKET}

    def _adopt(self, fitted: LearnedLimits, now: float) -> None:
        self._unexplained, self._pace = 0, None
        if self.learned is not None and fitted.same_as(self.learned):
            fitted = LearnedLimits(fitted.limits, fitted.concurrency, fitted.refusals, self.learned.since)
        else:
            if self.learned is not None:
                self.profile.changed_at, self._unconfirmed.confirmed = now, 0
            self.profile.findings += 1
            self._early.previous = None
        self.learned, self.exploring = fitted, False
        self.profile.learned[id(self)] = fitted
        self.profile.shortest_window = 0.0

    def _obey(self, learned: LearnedLimits) -> None:
        self.learned = self.profile.learned[id(self)] = learned
        self.profile.findings += 1

    def _handle_unexplained(self, now: float) -> None:
        """Explore a few more times; then send evenly at the rate admitted so far."""
        if self._is_obeying and self._refusals[-1].call.is_trial:
            # Only its hint is unexplained; the refusal itself was expected.
            return
        self._unexplained += 1
        if self._pace is not None:
            self._step_back(self._refusals[-1].call, now)
        elif (not self.hinted or self._unexplained > MAX_UNEXPLAINED) and self._send_evenly(now):
            return
        elif not self.exploring:
            self._explore(None)

    def _explore(self, since: float | None) -> None:
        self.exploring, self.probing = True, False
        self._unconfirmed.confirmed, self._explored_since = 0, since
        # A token bucket that has refilled admits a trial without being any larger.
        self.explores_beyond = (
            since is not None
            and self.learned is not None
            and all(limit.counting is not Counting.TOKEN_BUCKET for limit in self.learned.limits)
        )

    # An even pace, where neither hints nor hypotheses help.

    @property
    def pace(self) -> float | None:
        """Calls per second, while calls are merely sent evenly."""
        return self._pace.per_second if self._pace else None

    def _send_evenly(self, now: float) -> bool:
        """Start at the rate that was admitted recently; return whether that rate is known."""
        admitted = [call.at for call in self.history if not call.refused][-AVERAGED_CALLS:]
        if len(admitted) < MIN_AVERAGED or now <= admitted[0]:
            return False
        self._pace = AdaptivePace(len(admitted) / (now - admitted[0]))
        self._obey_pace(now)
        return True

    def _step_back(self, call: Reservation, now: float) -> None:
        if self._pace is not None and self._pace.record_refusal(call.at, now):
            self._obey_pace(now)

    def _obey_pace(self, now: float) -> None:
        assert self._pace is not None
        per_second = self._pace.per_second
        limit = LearnedLimit(Dimension.REQUESTS, Counting.TOKEN_BUCKET, 1.0, 1.0 / per_second)
        self.learned = LearnedLimits((limit,), since=self.learned.since if self.learned else now)
        self.exploring = self.probing = False
        self._unconfirmed.confirmed = 0

    # Trials.

    @property
    def hinted(self) -> bool:
        return not self._refusals or self._refusals[-1].hinted

    @property
    def sees_openings(self) -> bool:
        """Whether refusals tell when the limit opens: a hint in whole seconds does not, if its window is as short."""
        if not self._refusals or not self._refusals[-1].is_rounded or self.learned is None:
            return self.hinted
        return max((limit.length for limit in self.learned.limits), default=0.0) > ROUNDING

    @property
    def may_try(self) -> bool:
        return self._is_obeying and self.profile.may_try

    @property
    def may_try_early(self) -> bool:
        """Whether a call may be sent a little earlier than the learned limits allow, because their length is a guess."""
        if self.learned is None or not self._is_obeying:
            return False
        return self._early.is_due(self.learned, self._refusals[-1] if self._refusals else None)

    @property
    def early_share(self) -> float:
        """How early the next trial may be sent, as a share of the window's length."""
        assert self.learned is not None
        return self._early.share(self.learned)

    @property
    def _is_obeying(self) -> bool:
        return self.learned is not None and not self.exploring and self._pace is None

    def _shorten(self, early: float) -> None:
        if self.learned is None:
            return
        if self.learned.limits:
            self._obey(self._early.shortened(self.learned, early))
        else:
            self._explore(self._refusals[-1].known_at if self._refusals else None)

    def _follow_shortened(self) -> None:
        """Adopt the length that another key has found for windows of the same length."""
        followed = self._early.follow(self.learned) if self.learned else None
        if followed is not None and followed is not self.learned:
            self._obey(followed)

    # Other keys and runs.

    def forget(self) -> None:
        """Withdraw these limits from what the provider's other keys can see."""
        self.profile.learned.pop(id(self), None)

    def merge(self, learned: LearnedLimits) -> None:
        """Adopt what another run has learned."""
        self.learned, self.exploring, self.probing = learned, False, False
        self._unconfirmed.has_refused = True
        self.profile.learned[id(self)] = learned
