"""The summary of a run, as text and as JSON."""

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.summary import (
    as_json,
    continue_command,
    ending_lines,
    not_redone,
    overhead_text,
    summary_lines,
)


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


def worked(
    seconds: float,
    *before: events.Event,
    keys: tuple[str, ...] = ("key-1",),
    calls: int = 1,
    offline: bool = False,
) -> RunStats:
    """A run of one item: the worker's process takes 2 s to start, its calls take all but 1 s of the rest."""
    stats, used = RunStats(), Usage(calls, 10, 10)
    happened: tuple[tuple[float, events.Event], ...] = (
        (
            0.0,
            events.RunStarted("r", "lld", "/p", ("LLD-1",), 2, keys, "lld-workflow --all", offline=offline),
        ),
        (1.0, events.WorkerStarted("LLD-1", 4711)),
        (3.0, events.NodeStarted("LLD-1", "N1_design", 1)),
        *((3.5, event) for event in before),
        (seconds, events.LeaseReleased("LLD-1", "lease-1", seconds - 3.0, used)),
        (seconds + 1.0, events.ItemEnded("LLD-1", Outcome(Ending.FINISHED), seconds, used, 1)),
        (seconds + 1.0, events.RunEnded(0, seconds + 1.0, 0.0)),
    )
    for at, event in happened:
        stats.handle(event, at)
    return stats


def test_what_fresh_did_not_come_to_is_named_also_after_a_kill() -> None:
    items = tuple(f"LLD-{number}" for number in range(1, 8))
    stats = RunStats()
    for event in (
        events.RunStarted("r", "lld", "/p", items, 2, ("key-1",), "lld-workflow --all --fresh", redone=items),
        events.WorkerStarted("LLD-1", 4711),
        events.NodeStarted("LLD-1", "N1_design", 1),
        events.WorkerStarted("LLD-2", 4712),
    ):
        stats.handle(event, 0.0)
    left = ["Not redone: LLD-2, LLD-3, LLD-4, LLD-5, LLD-6, LLD-7; redo them with --fresh 2-7"]
    assert not_redone(stats) == left
    for item in items:
        stats.handle(events.ItemEnded(item, Outcome(Ending.INTERRUPTED), 0.0, Usage(), item < "LLD-3"), 1.0)
    assert not_redone(stats) == left


def test_the_command_after_an_interrupted_redo_also_redoes_what_it_did_not_come_to() -> None:
    command = "lld-workflow -j 2 1-3 --fresh 'issues/007-a b.md' --offline"
    stats = RunStats()
    items = ("LLD-1", "LLD-2", "LLD-3", "LLD-7")
    started = events.RunStarted(
        "r", "lld", "/p", items, 2, ("key-1",), command, redone=items, selecting_words=(3, 5)
    )
    stats.handle(started, 0.0)
    redo = "lld-workflow -j 2 {} --fresh --offline".format
    assert continue_command(stats, None) == redo("1-3 7")
    stats.handle(events.NodeStarted("LLD-2", "N1_design", 1), 1.0)
    resume = "lld-workflow -j 2 1-3 'issues/007-a b.md' --offline"
    assert continue_command(stats, None) == f"{resume}; {redo('1 3 7')}"
    for item in items:
        outcome = (
            Outcome(Ending.FINISHED, Verdict.APPROVED) if item == "LLD-2" else Outcome(Ending.INTERRUPTED)
        )
        stats.handle(events.ItemEnded(item, outcome, 0.0, Usage(), item == "LLD-2"), 2.0)
    assert continue_command(stats, None) == redo("1 3 7"), "the rest is done"


def test_cut_answers_are_counted_with_their_tokens() -> None:
    cut = events.CallCut("LLD-1", "key-1", "m", "no token for 300 s", 1, Usage(1, 5, 1200))
    stats = worked(22.0, cut)
    line = next(line for line in summary_lines(stats) if line.startswith("  Cut: "))
    assert line == (
        "  Cut: 1 answer (LLD-1), no token within call_timeout; 1,200 generated tokens are counted"
    )
    assert as_json(stats)["cuts"] == 1 and as_json(stats)["items"][0]["cuts"] == 1


def test_overhead_is_the_share_of_the_time_after_start_up_that_is_no_call() -> None:
    stats = worked(22.0)
    assert "  Coordination overhead: 5.0 % (first worker after 1.0s)" in summary_lines(stats)
    assert as_json(stats)["overhead_percent"] == 5.0


@pytest.mark.parametrize(
    "stats",
    [
        stopped(),
        stopped(events.WorkerStarted("LLD-1", 4711)),
        worked(11.0),
        worked(22.0, events.RunSuspended(), events.RunContinued(5.0)),
        worked(22.0, keys=()),
        worked(22.0, calls=100),
        worked(22.0, offline=True),
    ],
    ids=[
        "no worker",
        "no call",
        "under ten seconds of work",
        "after Ctrl-Z",
        "exec",
        "instant answers",
        "offline",
    ],
)
def test_no_overhead_is_given_where_it_would_mean_nothing(stats: RunStats) -> None:
    assert "overhead" not in "\n".join(summary_lines(stats))
    assert as_json(stats)["overhead_percent"] is None
    assert overhead_text(stats) == "not measured"


def finished(*results: str) -> RunStats:
    stats = RunStats()
    items = tuple(f"ISSUE-{number}" for number in range(len(results)))
    stats.handle(events.RunStarted("r", "issue", "/p", items, 2, ("key-1",), "issue-workflow --all"), 0.0)
    for item, result in zip(items, results, strict=True):
        stats.handle(events.ItemEnded(item, Outcome(Ending.FINISHED, result=result), 1.0, Usage(), 1), 1.0)
    stats.handle(events.RunEnded(0, 2.0, 0.0), 2.0)
    return stats


def test_a_stopped_run_is_not_called_complete() -> None:
    assert "Execution stopped:" in summary_lines(stopped())
    assert "Execution complete:" in summary_lines(finished("docs/x.md"))


def test_a_budget_that_is_too_low_for_one_call_is_not_suggested_again() -> None:
    stats = RunStats()
    for event in (
        events.RunStarted("r", "lld", "/p", ("LLD-1",), 2, ("key-1",), "lld-workflow 1 --budget 0.01"),
        events.ShutdownStarted("budget", "--budget 0.01 is too low for the first call"),
        events.ItemEnded("LLD-1", Outcome(Ending.INTERRUPTED), 2.0, Usage(), 1),
        events.RunEnded(75, 5.0, 0.0),
    ):
        stats.handle(event, 0.0)
    assert summary_lines(stats)[-1] == (
        "Everything is saved. Resume, with a higher budget, with: lld-workflow 1 --budget 0.02"
    )


def test_an_address_is_not_listed_as_a_folder() -> None:
    site = "https://github.com/o/r/issues"
    assert summary_lines(finished(f"{site}/7"))[-1] == f"Read the filed issue: {site}/7"
    assert (
        summary_lines(finished(*(f"{site}/{number}" for number in range(9))))[-1]
        == f"Read the filed issues: {site}"
    )
    both = summary_lines(finished(f"{site}/7", "docs/issues/needs-revision/ISSUE-001.md"))
    assert both[-2:] == [f"Read the filed issue: {site}/7", "Read the results: ls docs/issues/needs-revision"]


def test_of_many_items_approved_ones_are_counted_and_revisions_and_failures_come_last_with_a_reason() -> None:
    items = tuple(f"LLD-{number}" for number in range(1, 31))
    approved = Outcome(Ending.FINISHED, Verdict.APPROVED, 1, result="docs/lld/active/x.md")
    revise = Outcome(
        Ending.FINISHED, Verdict.NEEDS_REVISION, 5, details=("not approved",), result="docs/r.md"
    )
    broken = Outcome(Ending.FAILED, error="Invalid spec format", details=("no heading",))
    stats = RunStats()
    stats.handle(events.RunStarted("r", "lld", "/p", items, 2, ("key-1",), "lld-workflow --all"), 0.0)
    for item in items:
        outcome = {"LLD-3": broken, "LLD-7": revise}.get(item, approved)
        stats.handle(events.ItemEnded(item, outcome, 1.0, Usage(), 1), 1.0)
    stats.handle(events.RunEnded(1, 2.0, 0.0), 2.0)
    lines = summary_lines(stats)
    assert lines[0] == "28 approved (list them: agentos status -v)"
    assert lines[1].startswith("LLD-7 ") and lines[2] == "  reason: not approved; read docs/r.md"
    assert lines[3].startswith("LLD-3 ") and lines[3].endswith("Invalid spec format")
    assert lines[4:6] == [
        "  reason: no heading",
        "To redo an item that needs revision, change its text and run the same command again.",
    ]
    assert lines[6:10] == ["Execution complete:", "  Total: 30", "  Succeeded: 29", "  Failed: 1"]
    assert len(as_json(stats)["items"]) == 30


@pytest.mark.parametrize("failures", [1, 20, 21, 30])
def test_every_failure_has_its_bounded_reason_however_many_there_are(failures: int) -> None:
    items = tuple(f"LLD-{number}" for number in range(1, failures + 1))
    broken = Outcome(Ending.FAILED, error="Invalid spec format", details=("no heading", "x" * 1000))
    stats = RunStats()
    stats.handle(events.RunStarted("r", "lld", "/p", items, 2, ("key-1",), "lld-workflow --all"), 0.0)
    for item in items:
        stats.handle(events.ItemEnded(item, broken, 1.0, Usage(), 1), 1.0)
    stats.handle(events.RunEnded(1, 2.0, 0.0), 2.0)
    reasons = [line for line in summary_lines(stats) if line.startswith("  reason: no heading; xxx")]
    assert len(reasons) == failures and max(map(len, reasons)) < 320


def test_an_item_that_an_earlier_attempt_finished_is_reported_without_its_figures() -> None:
    outcome = Outcome(Ending.FINISHED, Verdict.APPROVED, earlier_attempt=True)
    ended = events.ItemEnded("LLD-1", outcome, 2.0, Usage(), 2)
    assert ending_lines(ended) == ["Already finished by an earlier attempt: approved"]


def test_many_parked_items_are_counted() -> None:
    items = tuple(f"LLD-{number}" for number in range(1, 31))
    stats = RunStats()
    stats.handle(events.RunStarted("r", "lld", "/p", items, 2, ("key-1",), "lld-workflow --all"), 0.0)
    for item in items:
        stats.handle(events.ItemEnded(item, Outcome(Ending.PARKED), 1.0, Usage(), 1), 1.0)
    stats.handle(events.RunEnded(0, 2.0, 0.0), 2.0)
    parked = [line for line in summary_lines(stats) if line.startswith("  Parked: ")]
    assert parked == ["  Parked: 30 items are waiting for a person: agentos review"]


def test_a_run_stopped_after_its_last_item_has_nothing_to_resume() -> None:
    finished = Outcome(Ending.FINISHED, Verdict.APPROVED, 1, result="docs/lld/active/LLD-001.md")
    happened: tuple[events.Event, ...] = (
        events.RunStarted("r", "lld", "/p", ("LLD-1",), 1, ("key-1",), "lld-workflow --all"),
        events.ShutdownStarted("SIGINT"),
        events.ItemEnded("LLD-1", finished, 2.0, Usage(), 1),
        events.RunEnded(130, 5.0, 0.0),
    )
    stats = RunStats()
    for at, event in enumerate(happened):
        stats.handle(event, float(at))
    assert summary_lines(stats)[-1] == "Read the results: ls docs/lld/active"
