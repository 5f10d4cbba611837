"""The footer on screens of any size."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.console import progress_line
from agentos.outputs.footer import TerminalSize, footer, rows_taken, snapshot, truncated


def run_stats(items: int = 6) -> RunStats:
    names = tuple(f"LLD-{number}" for number in range(1, items + 1))
    stats = RunStats()
    stats.handle(events.RunStarted("run", "lld", "/", names, items, ("key-1", "key-2")), 100.0)
    for name in names:
        stats.handle(events.ItemStarted(name, 1, 1), 100.0)
        stats.handle(events.NodeStarted(name, "N1_design", 1), 101.0)
    return stats


def test_the_footer_fits_in_half_the_screen_and_every_row_is_narrower_than_it() -> None:
    for columns in range(20, 140):
        for lines in range(4, 40):
            rows = footer(run_stats(), 110.0, TerminalSize(columns, lines))
            assert 1 <= len(rows) <= lines // 2
            assert all(len(row) < columns for row in rows)


def test_there_is_no_footer_on_a_tiny_screen_or_without_a_run() -> None:
    assert (
        footer(run_stats(), 110.0, TerminalSize(100, 3))
        == []
        == footer(run_stats(), 110.0, TerminalSize(19, 24))
    )
    assert footer(RunStats(), 110.0, TerminalSize(100, 24)) == []


def test_items_that_do_not_fit_are_counted() -> None:
    rows = footer(run_stats(), 110.0, TerminalSize(100, 10))
    assert rows[2] == "  ... and 4 more running"
    assert rows[3].startswith("[>         ] 0/6 workflows complete | 6 of 6 workers busy | time left ?")


def test_the_footer_shows_when_the_next_call_is_due_while_all_keys_are_at_their_limits() -> None:
    stats = run_stats(1)
    stats.handle(events.CallsThrottled("key-1", 60.0), 102.0)
    assert "keys in use: 0/2, all at their limits, next call at " in " ".join(
        footer(stats, 110.0, TerminalSize(200, 10))
    )
    stats.handle(events.LeaseGranted("LLD-1", "key-1", "lease", 8.0), 110.0)
    assert "at their limits" not in " ".join(footer(stats, 111.0, TerminalSize(200, 10)))


def test_the_footer_shows_slow_items_limited_keys_cost_and_pause() -> None:
    stats = run_stats(2)
    stats.handle(events.LeaseReleased("LLD-1", "lease", 1.0, Usage(1, 9000, 3000)), 102.0)
    stats.handle(events.CallCompleted("LLD-1", "key-1", "m", Usage(1, 9000, 3000), 0.25), 102.0)
    stats.handle(events.KeyLimited("key-2", 60.0, "429"), 103.0)
    stats.handle(events.ItemQuiet("LLD-1", "SLOW", "N1_design", 30.0), 104.0)
    stats.handle(events.RunPaused(), 105.0)
    text = "\n".join(footer(stats, 110.0, TerminalSize(200, 24)))
    for expected in (
        "round 1     12k tokens    $0.25     10s  SLOW",
        "PAUSED",
        "key-2 rate limited until",
        "cost $0.25",
    ):
        assert expected in text, text
    stats.handle(events.LineWritten("LLD-1", "alive"), 111.0)
    stats.handle(events.RunResumed(1.0), 111.0)
    text = "\n".join(footer(stats, 164.0, TerminalSize(200, 24)))
    assert "SLOW" not in text and "PAUSED" not in text and "rate limited" not in text


def test_an_item_that_waits_for_a_key_says_so_until_it_has_one() -> None:
    stats = run_stats(2)
    stats.handle(events.LeaseRequested("LLD-1", "draft-1", ("gemini",)), 102.0)
    rows = footer(stats, 110.0, TerminalSize(100, 24))
    assert rows[0].endswith("10s  waits for a key") and "waits" not in rows[1]
    assert "1 of 2 workers busy, 1 waiting for a key" in rows[2]
    assert footer(stats, 110.0, TerminalSize(34, 24))[0] == "  LLD-1  10s  waits for a key"
    assert "waits for a key" in snapshot(stats, 110.0)[1]
    plain = progress_line(stats, 110.0)
    assert "| running: LLD-2 N1_design | waiting for a key: LLD-1 |" in plain
    stats.handle(events.LeaseGranted("LLD-1", "key-1", "lease", 8.0), 111.0)
    assert "wait" not in " ".join((*footer(stats, 112.0, TerminalSize(100, 24)), progress_line(stats, 112.0)))


def test_a_worker_that_dies_while_waiting_no_longer_waits() -> None:
    stats = run_stats(1)
    stats.handle(events.LeaseRequested("LLD-1", "draft-1", ("gemini",)), 102.0)
    stats.handle(events.WorkerExited("LLD-1", "signal 9", clean=False), 103.0)
    stats.handle(events.ItemStarted("LLD-1", 1, 2), 104.0)
    assert "wait" not in footer(stats, 105.0, TerminalSize(100, 24))[0]


def test_while_suspended_the_footer_says_so_and_item_ages_stop() -> None:
    stats = run_stats(2)
    stats.handle(events.RunSuspended(), 110.0)
    text = "\n".join(footer(stats, 500.0, TerminalSize(200, 24)))
    assert "SUSPENDED (fg)" in text and "busy" not in text
    assert text.count("    10s") == 2 == "\n".join(snapshot(stats, 500.0)).count("    10s")


def test_a_narrow_screen_drops_usage_and_keeps_stalled_items() -> None:
    stats = run_stats(1)
    stats.handle(events.ItemQuiet("LLD-1", "STALLED", "N1_design", 300.0), 104.0)
    for columns, row in (
        (90, "  LLD-1     N1_design      round 1       0 tokens    $0.00  5m 00s  STALLED"),
        (60, "  LLD-1     N1_design      round 1   5m 00s  STALLED"),
        (46, "  LLD-1     N1_design      5m 00s  STALLED"),
        (30, "  LLD-1  5m 00s  STALLED"),
    ):
        assert footer(stats, 400.0, TerminalSize(columns, 24))[0] == row


def test_a_snapshot_fits_into_eighty_columns() -> None:
    stats = run_stats(1)
    stats.handle(events.LeaseReleased("LLD-1", "lease", 1.0, Usage(1, 1_900_000, 3000)), 102.0)
    stats.handle(events.KeyLimited("key-1", 9300.0, "429"), 103.0)
    lines = snapshot(stats, 9000.0)
    assert max(len(f"[COORDINATOR] {line}") for line in lines) <= 80
    assert "workflows complete" in lines[-3] and "1903k tokens" in lines[-1]


def test_wide_characters_count_as_two_columns() -> None:
    assert truncated("計画計画", 5) == "計画" and truncated("abcdef", 4) == "abc…"
    assert rows_taken(["x" * 50, "y"], 20) == 4


def test_a_program_without_keys_is_running_and_has_no_tokens_costs_or_keys() -> None:
    stats = RunStats()
    stats.handle(events.RunStarted("run", "exec-a81169e3", "/", ("a",), 1, ()), 100.0)
    stats.handle(events.ItemStarted("a", 1, 1), 100.0)
    text = " ".join([*footer(stats, 110.0, TerminalSize(200, 10)), *snapshot(stats, 110.0)])
    assert "running" in text and "starting" not in text
    assert not any(word in text for word in ("keys in use", "tokens", "$")), text
