"""What stands below the lines, for any size of screen."""

from agentos.core.protocol import events
from agentos.core.protocol.results import Usage
from agentos.core.run_state.run_stats import RunStats
from agentos.outputs.footer import TerminalSize, fitted, footer, rows_taken, snapshot


def tally(items: int = 6) -> RunStats:
    names = tuple(f"LLD-{number}" for number in range(1, items + 1))
    found = RunStats()
    found.handle(events.RunStarted("run", "lld", "/", names, items, ("key-1", "key-2")), 100.0)
    for name in names:
        found.handle(events.ItemStarted(name, 1, 1), 100.0)
        found.handle(events.NodeStarted(name, "N1_design", 1), 101.0)
    return found


def test_it_takes_at_most_half_the_screen_and_no_row_is_as_wide_as_it() -> None:
    for columns in range(20, 140):
        for lines in range(4, 40):
            rows = footer(tally(), 110.0, TerminalSize(columns, lines))
            assert 1 <= len(rows) <= lines // 2
            assert all(len(row) < columns for row in rows)


def test_there_is_none_where_there_is_no_room_or_no_run() -> None:
    assert footer(tally(), 110.0, TerminalSize(100, 3)) == [] == footer(tally(), 110.0, TerminalSize(19, 24))
    assert footer(RunStats(), 110.0, TerminalSize(100, 24)) == []


def test_items_that_have_no_room_are_counted() -> None:
    rows = footer(tally(), 110.0, TerminalSize(100, 10))
    assert rows[2] == "  ... and 4 more at work"
    assert rows[3].startswith("[>         ] 0/6 workflows complete | 6 of 6 workers busy | time left ?")


def test_it_says_when_the_next_call_goes_while_every_key_is_at_its_limit() -> None:
    found = tally(1)
    found.handle(events.CallsThrottled("key-1", 60.0), 102.0)
    assert "keys in use: 0/2, each at its limit, next call at " in " ".join(
        footer(found, 110.0, TerminalSize(200, 10))
    )
    found.handle(events.LeaseGranted("LLD-1", "key-1", "lease", 8.0), 110.0)
    assert "at its limit" not in " ".join(footer(found, 111.0, TerminalSize(200, 10)))


def test_it_says_what_is_slow_resting_spent_and_paused() -> None:
    found = tally(2)
    found.handle(events.LeaseReleased("LLD-1", "lease", 1.0, Usage(1, 9000, 3000)), 102.0)
    found.handle(events.CallCompleted("LLD-1", "key-1", "m", Usage(1, 9000, 3000), 0.25), 102.0)
    found.handle(events.KeyLimited("key-2", 60.0, "429"), 103.0)
    found.handle(events.ItemQuiet("LLD-1", "SLOW", "N1_design", 30.0), 104.0)
    found.handle(events.RunPaused(), 105.0)
    text = "\n".join(footer(found, 110.0, TerminalSize(200, 24)))
    for said in (
        "round 1     12k tokens    $0.25     10s  SLOW",
        "PAUSED",
        "key-2 resting until",
        "cost $0.25",
    ):
        assert said in text, text
    found.handle(events.LineWritten("LLD-1", "alive"), 111.0)
    found.handle(events.RunResumed(1.0), 111.0)
    text = "\n".join(footer(found, 164.0, TerminalSize(200, 24)))
    assert "SLOW" not in text and "PAUSED" not in text and "resting" not in text


def test_for_ctrl_z_it_says_so_and_the_items_grow_no_older() -> None:
    found = tally(2)
    found.handle(events.RunSuspended(), 110.0)
    text = "\n".join(footer(found, 500.0, TerminalSize(200, 24)))
    assert "STANDING STILL (fg)" in text and "busy" not in text
    assert text.count("    10s") == 2 == "\n".join(snapshot(found, 500.0)).count("    10s")


def test_a_narrow_screen_leaves_out_what_was_used_and_keeps_who_is_stalled() -> None:
    found = tally(1)
    found.handle(events.ItemQuiet("LLD-1", "STALLED", "N1_design", 300.0), 104.0)
    for columns, row in (
        (90, "  LLD-1     N1_design      round 1       0 tokens    $0.00  5m 00s  STALLED"),
        (60, "  LLD-1     N1_design      round 1   5m 00s  STALLED"),
        (46, "  LLD-1     N1_design      5m 00s  STALLED"),
        (30, "  LLD-1  5m 00s  STALLED"),
    ):
        assert footer(found, 400.0, TerminalSize(columns, 24))[0] == row


def test_a_snapshot_fits_into_eighty_columns() -> None:
    found = tally(1)
    found.handle(events.LeaseReleased("LLD-1", "lease", 1.0, Usage(1, 1_900_000, 3000)), 102.0)
    found.handle(events.KeyLimited("key-1", 9300.0, "429"), 103.0)
    shown = snapshot(found, 9000.0)
    assert max(len(f"[COORDINATOR] {line}") for line in shown) <= 80
    assert "workflows complete" in shown[-3] and "1903k tokens" in shown[-1]


def test_wide_characters_count_as_two() -> None:
    assert fitted("計画計画", 5) == "計画" and fitted("abcdef", 4) == "abc…"
    assert rows_taken(["x" * 50, "y"], 20) == 4
