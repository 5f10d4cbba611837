"""Imagined lives hold what is promised, are the same again from their seed, and show what is broken."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentos.core import events
from agentos.core.credentials import Credential
from agentos.core.decision import Decision
from agentos.core.limits import Limits
from agentos.core.pool import Pool
from agentos.core.run import Run

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


class Hasty(Run):
    """Does not wait as long as it was asked to."""

    def hear(self, event: events.Event, now: float) -> Decision:
        if isinstance(event, events.LeaseReturned) and event.refusal:
            event = replace(event, refusal=replace(event.refusal, seconds=0.0, limits=()))
        return super().hear(event, now)


class Hoarding(Run):
    """Keeps the leases of the dead."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._leasing.gone = lambda holder: None  # type: ignore[method-assign]


class Forgetful(Run):
    """Loses what is to be tried again."""

    def __init__(self, items: tuple[str, ...], pool: Pool, limits: Limits, *more: object) -> None:
        super().__init__(items, pool, limits, *more)  # type: ignore[arg-type]
        self._roster.queue_last = lambda work: None  # type: ignore[method-assign]


class Generous(Run):
    """Lets a key carry more calls than it may."""

    def change_credentials(self, credentials: list[Credential], now: float) -> Decision:
        return super().change_credentials([replace(one, concurrency=9) for one in credentials], now)


class Sleepy(Run):
    """Is never woken by time alone."""

    def deadline(self, now: float) -> float | None:
        return None


class Repeating(Run):
    """Tells the end of an item twice."""

    def hear(self, event: events.Event, now: float) -> Decision:
        decision = super().hear(event, now)
        decision.news += [news for news in decision.news if isinstance(news, events.ItemEnded)]
        return decision


class Stubborn(Run):
    """Goes on starting after a signal."""

    def _hear_stop(self, event: events.StopRequested, decision: Decision, now: float) -> None:
        super()._hear_stop(event, decision, now)
        self._stop.reason = ""


def _failure(seed: int, brain: type[Run]) -> tuple[str, list[str]] | None:
    """What went wrong in a life, and all that had happened before."""
    trace: list[str] = []
    try:
        Life(seed, trace=trace, brain=brain).live()
    except Exception as error:
        return repr(error), trace
    return None


@pytest.mark.parametrize("brain", [Hasty, Hoarding, Forgetful, Generous, Sleepy, Repeating, Stubborn])
def test_a_planted_bug_is_found(brain: type[Run]) -> None:
    for seed in range(FIXED, FIXED + 400):
        if failed := _failure(seed, brain):
            assert _failure(seed, brain) == failed, "the seed fails in another way when it is replayed"
            return
    pytest.fail(f"{brain.__name__} went unnoticed in 400 lives")
