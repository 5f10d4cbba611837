"""Imagined lives hold what is promised, are the same again from their seed, and show what is broken."""

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

from .__main__ import FIXED, survive
from .life import Life, Told

LIVES = 60


@pytest.mark.parametrize("first", [FIXED, random.SystemRandom().randrange(10**9)], ids=["fixed", "fresh"])
def test_whatever_happens_every_item_ends_once_and_nothing_is_lost(first: int) -> None:
    told = Told()
    seed = survive(range(first, first + LIVES), told)
    assert seed is None, f"again with: make simulate SEED={seed}"
    assert told.lives == LIVES and told.refused and told.deaths and told.answered


def test_a_seed_tells_the_same_life_again() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        for seed in range(FIXED, FIXED + 5):
            Life(seed, trace=trace).live()
    assert first == second and len(first) > 100


def test_a_life_is_the_same_in_another_process() -> None:
    """Also where the order of sets is another one."""
    words = [sys.executable, "-m", "tests.simulation", "--seed", str(FIXED + 6)]
    told = [
        subprocess.run(
            words,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and told[0].count(b"\n") > 20


class Hasty(Scheduler):
    """Does not wait as long as it was asked to."""

    def handle(self, event: events.Event, now: float) -> StepResult:
        if isinstance(event, events.LeaseReleased) and event.refusal:
            event = replace(event, refusal=replace(event.refusal, seconds=0.0, limits=()))
        return super().handle(event, now)


class Hoarding(Scheduler):
    """Keeps the leases of the dead."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._lease_manager.drop_holder = lambda holder: None  # type: ignore[method-assign]


class Forgetful(Scheduler):
    """Loses what is to be tried again."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._queue.queue_last = lambda item: None  # type: ignore[method-assign]


class Generous(Scheduler):
    """Lets a key carry more calls than it may."""

    def change_credentials(self, credentials: list[Credential], now: float) -> StepResult:
        return super().change_credentials([replace(one, concurrency=9) for one in credentials], now)


class Sleepy(Scheduler):
    """Is never woken by time alone."""

    def deadline(self, now: float) -> float | None:
        return None


class Repeating(Scheduler):
    """Tells the end of an item twice."""

    def handle(self, event: events.Event, now: float) -> StepResult:
        decision = super().handle(event, now)
        decision.news += [news for news in decision.news if isinstance(news, events.ItemEnded)]
        return decision


class Stubborn(Scheduler):
    """Goes on starting after a signal."""

    def _handle_stop_request(self, event: events.StopRequested, decision: StepResult, now: float) -> None:
        super()._handle_stop_request(event, decision, now)
        self._shutdown.reason = ""


def _failure(seed: int, brain: type[Scheduler]) -> tuple[str, list[str]] | None:
    """What went wrong in a life, and all that had happened before."""
    trace: list[str] = []
    try:
        Life(seed, trace=trace, brain=brain).live()
    except Exception as error:
        return repr(error), trace
    return None


@pytest.mark.parametrize("brain", [Hasty, Hoarding, Forgetful, Generous, Sleepy, Repeating, Stubborn])
def test_a_planted_bug_is_found(brain: type[Scheduler]) -> None:
    for seed in range(FIXED, FIXED + 400):
        if failed := _failure(seed, brain):
            assert _failure(seed, brain) == failed, "the seed fails in another way when it is replayed"
            return
    pytest.fail(f"{brain.__name__} went unnoticed in 400 lives")
