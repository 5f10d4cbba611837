"""Random scenarios keep all invariants, are reproducible from their seed, and find planted bugs."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import StepResult
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler

from .__main__ import FIXED_SEED, first_failure
from .scenario import Scenario, Totals

SCENARIOS = 60


@pytest.mark.parametrize(
    "first", [FIXED_SEED, random.SystemRandom().randrange(10**9)], ids=["fixed", "fresh"]
)
def test_every_item_ends_once_and_nothing_is_lost(first: int) -> None:
    totals = Totals()
    seed = first_failure(range(first, first + SCENARIOS), totals)
    assert seed is None, f"replay with: make simulate SEED={seed}"
    assert totals.scenarios == SCENARIOS and totals.refused and totals.crashes and totals.answered


def test_a_long_hint_is_followed_even_if_the_refusals_look_like_a_limit_on_concurrent_calls() -> None:
    totals = Totals()
    Scenario(452_980_697, totals).run()  # fails if a key is used before the time that its provider named
    assert totals.refused


def test_a_seed_reproduces_its_scenario() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        for seed in range(FIXED_SEED, FIXED_SEED + 5):
            Scenario(seed, trace=trace).run()
    assert first == second and len(first) > 100


def test_a_scenario_is_the_same_in_another_process() -> None:
    """Also with a different hash seed, which changes the order of sets."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(FIXED_SEED + 6)]
    outputs = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] and outputs[0].count(b"\n") > 20


class IgnoresRetryHints(Scheduler):
    """Ignores the retry hints of refusals."""

    def handle(self, event: events.Event, now: float) -> StepResult:
        if isinstance(event, events.LeaseReleased) and event.refusal:
            event = replace(event, refusal=replace(event.refusal, seconds=0.0, limits=()))
        return super().handle(event, now)


class KeepsLeases(Scheduler):
    """Keeps the leases of crashed workers."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._lease_manager.drop_holder = lambda holder: None  # type: ignore[method-assign]


class LosesRetries(Scheduler):
    """Loses items that are to be retried."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._queue.queue_last = lambda item: None  # type: ignore[method-assign]


class ExceedsConcurrency(Scheduler):
    """Allows more concurrent calls per key than configured."""

    def change_credentials(self, credentials: list[Credential], now: float) -> StepResult:
        return super().change_credentials(
            [replace(credential, concurrency=9) for credential in credentials], now
        )


class WithoutDeadlines(Scheduler):
    """Has no deadlines."""

    def deadline(self, now: float) -> float | None:
        return None


class ReportsEndsTwice(Scheduler):
    """Reports the end of an item twice."""

    def handle(self, event: events.Event, now: float) -> StepResult:
        step = super().handle(event, now)
        step.events += [event for event in step.events if isinstance(event, events.ItemEnded)]
        return step


class IgnoresSignals(Scheduler):
    """Keeps starting items after a signal."""

    def _handle_event(self, event: events.Event, step: StepResult, now: float) -> None:
        super()._handle_event(event, step, now)
        if isinstance(event, events.StopRequested):
            self._shutdown._reason = ""


def _failure(seed: int, scheduler: type[Scheduler]) -> tuple[str, list[str]] | None:
    """The error of a scenario and the trace up to it; None if it passed."""
    trace: list[str] = []
    try:
        Scenario(seed, trace=trace, scheduler=scheduler).run()
    except Exception as error:
        return repr(error), trace
    return None


@pytest.mark.parametrize(
    "scheduler",
    [
        IgnoresRetryHints,
        KeepsLeases,
        LosesRetries,
        ExceedsConcurrency,
        WithoutDeadlines,
        ReportsEndsTwice,
        IgnoresSignals,
    ],
)
def test_a_planted_bug_is_found(scheduler: type[Scheduler]) -> None:
    for seed in range(FIXED_SEED, FIXED_SEED + 400):
        if failed := _failure(seed, scheduler):
            assert _failure(seed, scheduler) == failed, "the replay fails differently"
            return
    pytest.fail(f"{scheduler.__name__} was not found in 400 scenarios")
