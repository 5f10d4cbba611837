"""The scheduling cost of an item does not depend on the number of items."""

import cProfile
import pstats

import pytest

from agentos.core.forecast.discrete_events import EventSimulator, ReplayWorkers
from agentos.core.forecast.history import CallTrace, ItemTrace
from agentos.core.protocol.events import LeaseRequested
from agentos.core.protocol.results import Usage
from agentos.core.quota.budget import Limits
from agentos.core.quota.credentials import Credential
from agentos.core.quota.pool import Pool
from agentos.core.scheduling.scheduler import Scheduler
from agentos.core.text.secrets import Secret

REQUEST = LeaseRequested("LLD-1", "call", ("gemini",), ("gemini-2.5-pro",), 800, 600, 0)
TRACE = ItemTrace(0.1, (CallTrace(0.1, REQUEST, 1.0, Usage(1, 800, 600)),), 0.1, (("N1_design", 0),))


def function_calls_per_item(count: int) -> float:
    """Count the function calls of a simulated run, polled as the event loop does, per item."""
    items = tuple(f"LLD-{number}" for number in range(count))
    keys = [Credential(f"key-{n}", "gemini", Secret(f"the key number {n}")) for n in range(4)]
    run = Scheduler(items, Pool(keys), Limits(3), lambda: 0.5, 0.0)
    simulator = EventSimulator(run, ReplayWorkers(dict.fromkeys(items, TRACE), 0.0), 0.0)
    profile = cProfile.Profile()
    profile.enable()
    simulator.begin()
    while not run.over:
        simulator.step()
        run.parked()
    profile.disable()
    assert run.exit_code() == 0
    stats = pstats.Stats(profile)
    return stats.total_calls / count  # type: ignore[attr-defined, no-any-return]


def test_scheduling_cost_per_item_does_not_grow_with_the_number_of_items() -> None:
    few, many = function_calls_per_item(50), function_calls_per_item(500)
    assert few > 50
    assert many == pytest.approx(few, rel=0.1)
