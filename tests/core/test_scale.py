"""What an item costs the brain does not depend on how many there are."""

import cProfile
import pstats

import pytest

from agentos.core.forecast.discrete_events import EventSimulator
from agentos.core.forecast.history import CallTrace, ItemTrace
from agentos.core.forecast.replay_workers import ReplayWorkers
from agentos.core.protocol.events import LeaseRequested
from agentos.core.protocol.results import Usage
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.run_limits import Limits
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret

WISH = LeaseRequested("LLD-1", "call", ("gemini",), ("gemini-2.5-pro",), 800, 600, 0)
LIFE = ItemTrace(0.1, (CallTrace(0.1, WISH, 1.0, Usage(1, 800, 600)),), 0.1, (("N1_design", 0),))


def calls_an_item(count: int) -> float:
    """Function calls of a whole run among imagined workers, looked at as the coordinator does."""
    items = tuple(f"LLD-{number}" for number in range(count))
    keys = [Credential(f"key-{n}", "gemini", Secret(f"the key number {n}")) for n in range(4)]
    run = Scheduler(items, Pool(keys), Limits(3), lambda: 0.5, 0.0)
    world = EventSimulator(run, ReplayWorkers(dict.fromkeys(items, LIFE), 0.0), 0.0)
    profile = cProfile.Profile()
    profile.enable()
    world.begin()
    while not run.over:
        world.step()
        run.parked()
    profile.disable()
    assert run.exit_code() == 0
    found = pstats.Stats(profile)
    return found.total_calls / count  # type: ignore[attr-defined, no-any-return]


def test_the_five_hundredth_item_costs_the_brain_no_more_than_the_tenth() -> None:
    few, many = calls_an_item(50), calls_an_item(500)
    assert few > 50
    assert many == pytest.approx(few, rel=0.1)
