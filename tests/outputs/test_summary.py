"""The end of a run, in words and as data."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.summary import as_json, summary_lines


def stopped(*before: events.Event) -> RunStats:
    """A run of one item that was stopped after five seconds."""
    found = RunStats()
    heard = (
        events.RunStarted("r", "lld", "/p", ("LLD-1",), 2, ("key-1",), "lld-workflow --all"),
        *before,
        events.ShutdownStarted("SIGINT"),
        events.ItemEnded("LLD-1", Outcome(Ending.INTERRUPTED), 2.0 if before else 0.0, Usage(), len(before)),
        events.RunEnded(130, 5.0, 0.0),
    )
    for at, event in enumerate(heard):
        found.handle(event, float(at))
    return found


def test_before_a_worker_came_up_there_is_no_overhead_to_tell() -> None:
    none = stopped()
    assert "  Coordination overhead: ? (no worker came up)" in summary_lines(none)
    assert as_json(none)["overhead_percent"] is None is as_json(none)["warm_up"]
    one = stopped(events.WorkerStarted("LLD-1", 4711))
    assert "  Coordination overhead: 100.0 % (first worker after 1.0s)" in summary_lines(one)
    assert as_json(one)["warm_up"] == 1.0
