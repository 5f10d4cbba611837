"""The summary of a run, as text and as JSON."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.summary import as_json, summary_lines


def stopped(*before: events.Event) -> RunStats:
    """A run of one item that was stopped after five seconds."""
    stats = RunStats()
    happened = (
        events.RunStarted("r", "lld", "/p", ("LLD-1",), 2, ("key-1",), "lld-workflow --all"),
        *before,
        events.ShutdownStarted("SIGINT"),
        events.ItemEnded("LLD-1", Outcome(Ending.INTERRUPTED), 2.0 if before else 0.0, Usage(), len(before)),
        events.RunEnded(130, 5.0, 0.0),
    )
    for at, event in enumerate(happened):
        stats.handle(event, float(at))
    return stats


def test_overhead_is_unknown_until_a_worker_has_started() -> None:
    without = stopped()
    assert "  Coordination overhead: ? (no worker started)" in summary_lines(without)
    assert as_json(without)["overhead_percent"] is None is as_json(without)["warm_up"]
    with_worker = stopped(events.WorkerStarted("LLD-1", 4711))
    assert "  Coordination overhead: 100.0 % (first worker after 1.0s)" in summary_lines(with_worker)
    assert as_json(with_worker)["warm_up"] == 1.0
