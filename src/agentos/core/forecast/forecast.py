"""Forecasts a run by simulating it: the real scheduler, replayed workers, a virtual clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from agentos.core.constants import AUTO_PARALLEL
from agentos.core.forecast.history import RunHistory
from agentos.core.forecast.simulation import Bottleneck, RunSimulation, SimulationInputs, SimulationResult
from agentos.core.protocol.peer_notes import BucketLimitsLearned, Note
from agentos.core.protocol.results import Usage
from agentos.core.text.secrets import Secret

# How long a short run takes depends on which items are long and which one comes last, so it is simulated several times.
MAX_SIMULATIONS = 9
ITEMS_IN_ALL_SIMULATIONS = 150
NO_CHANGE = 0.02  # relative difference


class Unknown(StrEnum):
    """Why there is no forecast."""

    NO_KEY = "no key"
    NO_RUN = "no run"
    NO_MATCHING_RUN = "no matching run"
    NO_START = "no start"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run is expected to need. A field is None if it is unknown; `unknown` says why.

    `items_ended` counts the items that end before the run stops. `exit_code` is None if the run would take longer
    than the simulation covers. `earlier_items` and `earlier_runs` say how much history the forecast is based on.
    """

    usage: Usage | None = None
    cost: float | None = None
    seconds: float | None = None
    items: int = 0
    items_ended: int = 0
    exit_code: int | None = None
    bottleneck: Bottleneck | None = None
    seconds_with_one_more_worker: float | None = None
    seconds_with_one_more_key: float | None = None
    earlier_items: int = 0
    earlier_runs: int = 0
    run_kind: str = ""
    """The workflow and mode of the runs in the history."""
    unknown: Unknown | None = None
    start_problem: str = ""
    """Why the run would not start."""
    warnings: tuple[str, ...] = ()
    """What the run would say about keys that it passes over."""


def forecast(inputs: SimulationInputs, history: RunHistory) -> Forecast:
    """Forecast the run from the items of earlier runs."""
    complete = history.complete()
    unknown = _why_unknown(inputs, history.runs, complete)
    if unknown:
        return Forecast(items=len(inputs.entries), earlier_runs=history.runs, unknown=unknown)
    inputs = replace(inputs, notes=_lower_unexplained_rates(inputs.notes, complete.calls_per_second))
    expected = _expected(_simulate(inputs, complete))
    one_more_worker = replace(inputs.limits, parallel=inputs.limits.parallel + 1)
    is_auto = inputs.limits.parallel == AUTO_PARALLEL
    at_most = is_auto or inputs.limits.parallel >= inputs.limits.max_parallel
    faster = (
        None if at_most else _expected(_simulate(replace(inputs, limits=one_more_worker), complete)).seconds
    )
    bottleneck = expected.bottleneck
    if bottleneck and bottleneck.what == "workers" and _is_same(faster, expected.seconds):
        bottleneck = replace(bottleneck, what="items")  # such as one long item beside others that end at once
    return Forecast(
        usage=expected.usage,
        cost=expected.cost,
        seconds=expected.seconds,
        items=len(inputs.entries),
        items_ended=expected.items_ended,
        exit_code=expected.exit_code,
        bottleneck=bottleneck,
        seconds_with_one_more_worker=faster,
        seconds_with_one_more_key=_expected(
            _simulate(_with_one_more_key(inputs, expected.bottleneck), complete)
        ).seconds,
        earlier_items=len(complete.traces),
        earlier_runs=complete.runs,
    )


def _is_same(seconds: float | None, before: float | None) -> bool:
    return seconds is not None and before is not None and abs(seconds - before) <= NO_CHANGE * before


def _why_unknown(inputs: SimulationInputs, runs: int, complete: RunHistory) -> Unknown | None:
    if not any(credential.enabled for credential in inputs.credentials):
        return Unknown.NO_KEY
    if not runs:
        return Unknown.NO_RUN
    return None if complete.traces else Unknown.NO_MATCHING_RUN


def _lower_unexplained_rates(notes: tuple[Note, ...], calls_per_second: float | None) -> tuple[Note, ...]:
    """Lower the learned rates that explain no refusal.

    Such a rate may be too high, while the rate that earlier runs achieved is below what the provider allows; the
    geometric mean of the two is the best guess.
    """
    unexplained = [
        note
        for note in notes
        if isinstance(note, BucketLimitsLearned) and note.learned is not None and note.learned.refusals == 0
    ]
    if calls_per_second is None or not unexplained:
        return notes
    measured = calls_per_second / len(unexplained)
    return tuple(_with_lower_rates(note, measured) if note in unexplained else note for note in notes)


def _with_lower_rates(note: Note, measured: float) -> Note:
    if not isinstance(note, BucketLimitsLearned) or note.learned is None:
        return note
    limits = tuple(
        replace(
            limit,
            seconds=limit.amount / min(limit.rate.per_second, math.sqrt(limit.rate.per_second * measured)),
        )
        for limit in note.learned.limits
    )
    return replace(note, learned=replace(note.learned, limits=limits))


def _simulate(inputs: SimulationInputs, history: RunHistory) -> list[SimulationResult]:
    """Simulate the run with different random seeds; return the results, shortest run first."""
    simulations = max(1, min(MAX_SIMULATIONS, ITEMS_IN_ALL_SIMULATIONS // max(1, len(inputs.entries))))
    results = [RunSimulation(inputs, history, seed).run() for seed in range(simulations)]
    return sorted(results, key=lambda result: math.inf if result.seconds is None else result.seconds)


def _expected(results: Sequence[SimulationResult]) -> SimulationResult:
    """The result with the median duration, but with the mean usage and cost of all results."""
    median = results[len(results) // 2]
    costs = [result.cost for result in results if result.cost is not None]
    usage = Usage(
        round(fmean(result.usage.calls for result in results)),
        round(fmean(result.usage.input_tokens for result in results)),
        round(fmean(result.usage.output_tokens for result in results)),
    )
    return replace(median, usage=usage, cost=fmean(costs) if len(costs) == len(results) else None)


def _with_one_more_key(inputs: SimulationInputs, bottleneck: Bottleneck | None) -> SimulationInputs:
    """Add a copy, with a quota of its own, of the first key that calls wait for, or else of the first enabled one."""
    enabled = [credential for credential in inputs.credentials if credential.enabled]
    scarce = bottleneck.keys if bottleneck else ()
    original = next((credential for credential in enabled if credential.name in scarce), enabled[0])
    copy = replace(original, name="one-more", secret=Secret("one more simulated key"), bucket="")
    learned = [
        replace(note, bucket=copy.quota)
        for note in inputs.notes
        if isinstance(note, BucketLimitsLearned) and note.bucket == original.quota
    ]
    return replace(inputs, credentials=(*inputs.credentials, copy), notes=(*inputs.notes, *learned))
