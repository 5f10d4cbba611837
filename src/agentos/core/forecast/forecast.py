"""How a run would go: the same brain, on a clock that is not waited for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from agentos.core.constants import MAX_PARALLEL
from agentos.core.forecast.history import RunHistory
from agentos.core.forecast.simulation import Bottleneck, RunSimulation, SimulationInputs, SimulationResult
from agentos.core.protocol.peer_notes import BucketLimitsLearned, Note
from agentos.core.protocol.results import Usage
from agentos.core.ratelimit.rate_estimator import SAFETY_FACTOR
from agentos.core.text.secrets import Secret

# A short run hangs on which items are the long ones, and on who comes last: it is tried several times.
MOST_DRAWS = 9
ENOUGH_ITEMS = 150


class Unknown(StrEnum):
    """Why nothing can be said."""

    NO_KEY = "no key"
    NO_RUN = "no run"
    OTHERS = "others"
    NO_START = "no start"


@dataclass(frozen=True, slots=True)
class Forecast:
    """None is not known, and `unknown` says why; `ended` counts the items that a run would get to before it stops.

    `runs` and `lives` say what it is drawn from, `like` what runs those are; without an exit code the run would
    last for days.
    """

    usage: Usage | None = None
    cost: float | None = None
    seconds: float | None = None
    items: int = 0
    ended: int = 0
    exit_code: int | None = None
    bottleneck: Bottleneck | None = None
    one_more_worker: float | None = None
    one_more_key: float | None = None
    lives: int = 0
    runs: int = 0
    like: str = ""
    unknown: Unknown | None = None
    trouble: str = ""
    """Why a run would not even begin."""


def forecast(inputs: SimulationInputs, experience: RunHistory) -> Forecast:
    """What would come of it, as far as earlier runs tell."""
    known = experience.whole()
    unknown = _unknown(inputs, experience.runs, known)
    if unknown:
        return Forecast(items=len(inputs.entries), runs=experience.runs, unknown=unknown)
    inputs = replace(inputs, notes=_tempered(inputs.notes, known.calls_per_second))
    tried = _expected(_tries(inputs, known))
    more_workers = replace(inputs.limits, parallel=inputs.limits.parallel + 1)
    at_most = inputs.limits.parallel >= MAX_PARALLEL
    return Forecast(
        usage=tried.usage,
        cost=tried.cost,
        seconds=tried.seconds,
        items=len(inputs.entries),
        ended=tried.ended,
        exit_code=tried.exit_code,
        bottleneck=tried.bottleneck,
        one_more_worker=None if at_most else _seconds(replace(inputs, limits=more_workers), known),
        one_more_key=_seconds(_with_one_more_key(inputs), known),
        lives=len(known.traces),
        runs=known.runs,
    )


def _unknown(inputs: SimulationInputs, runs: int, known: RunHistory) -> Unknown | None:
    if not any(credential.enabled for credential in inputs.credentials):
        return Unknown.NO_KEY
    if not runs:
        return Unknown.NO_RUN
    return None if known.traces else Unknown.OTHERS


def _tempered(notes: tuple[Note, ...], pace: float | None) -> tuple[Note, ...]:
    """A rate that is still being looked for may be too high, and the run that looked for it was too slow for that.

    What there will be is taken to be in the middle between the two.
    """
    sought = [note for note in notes if isinstance(note, BucketLimitsLearned) and _is_sought(note)]
    if pace is None or not sought:
        return notes
    share = pace / (SAFETY_FACTOR * len(sought))
    return tuple(_slowed(note, share) if note in sought else note for note in notes)


def _is_sought(note: BucketLimitsLearned) -> bool:
    return note.requests_per_second is not None and note.window_seconds is None and note.token_rate is None


def _slowed(note: Note, share: float) -> Note:
    if isinstance(note, BucketLimitsLearned) and note.requests_per_second is not None:
        return replace(
            note,
            requests_per_second=min(note.requests_per_second, math.sqrt(note.requests_per_second * share)),
        )
    return note


def _tries(inputs: SimulationInputs, known: RunHistory) -> list[SimulationResult]:
    """Each with the lives dealt out in another way, the quickest first."""
    draws = max(1, min(MOST_DRAWS, ENOUGH_ITEMS // max(1, len(inputs.entries))))
    found = [RunSimulation(inputs, known, draw).run() for draw in range(draws)]
    return sorted(found, key=lambda one: float("inf") if one.seconds is None else one.seconds)


def _expected(tries: Sequence[SimulationResult]) -> SimulationResult:
    """The one in the middle, with what is used on average."""
    middle = tries[len(tries) // 2]
    costs = [one.cost for one in tries if one.cost is not None]
    usage = Usage(
        round(fmean(one.usage.calls for one in tries)),
        round(fmean(one.usage.input_tokens for one in tries)),
        round(fmean(one.usage.output_tokens for one in tries)),
    )
    return replace(middle, usage=usage, cost=fmean(costs) if len(costs) == len(tries) else None)


def _seconds(inputs: SimulationInputs, known: RunHistory) -> float | None:
    return _expected(_tries(inputs, known)).seconds


def _with_one_more_key(inputs: SimulationInputs) -> SimulationInputs:
    """One like the first usable, with a quota of its own."""
    model = next(credential for credential in inputs.credentials if credential.enabled)
    more = replace(model, name="one-more", secret=Secret("one more key, imagined"), bucket="")
    learnt = [
        replace(note, bucket=more.quota)
        for note in inputs.notes
        if isinstance(note, BucketLimitsLearned) and note.bucket == model.quota
    ]
    return replace(inputs, credentials=(*inputs.credentials, more), notes=(*inputs.notes, *learnt))
