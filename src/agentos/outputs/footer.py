"""Renders the footer of a live display: running items and overall progress."""

import math
import unicodedata
from dataclasses import dataclass

from agentos.core.planning.exec_command import is_exec
from agentos.core.run_state.eta import estimate
from agentos.core.run_state.run_stats import ItemStats, RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.format import clock, count, dollars, duration, tokens

MIN_COLUMNS, MIN_LINES = 20, 4
WAITS_FOR_KEY = "waits for a key"
SNAPSHOT_COLUMNS = 64  # of 80, less the coordinator's prefix and two spaces


@dataclass(frozen=True, slots=True)
class TerminalSize:
    columns: int
    lines: int

    @property
    def too_small(self) -> bool:
        return self.columns < MIN_COLUMNS or self.lines < MIN_LINES


def footer(stats: RunStats, at: float, size: TerminalSize) -> list[str]:
    """The rows of the footer, in at most half the lines of the screen and less than its width.

    Empty before the run starts, after it ends, and on a screen that is too small.
    """
    if stats.started is None or stats.ended is not None or size.too_small:
        return []
    max_rows, columns = size.lines // 2, size.columns - 1
    progress = _wrap(progress_parts(stats, at), columns)[: max(1, min(3, max_rows // 2))]
    rows = [_narrow_item_row(row, stats, at, columns) for row in stats.running]
    max_items = max_rows - len(progress)
    if len(rows) > max_items:
        hidden = len(rows) - max(0, max_items - 1)
        rows = [*rows[: max_items - 1], f"  ... and {hidden} more running"] if max_items > 0 else []
    return [truncated(row, columns) for row in (*rows, *progress)]


def snapshot(stats: RunStats, at: float) -> list[str]:
    """The footer at full length, for a user who pressed a key."""
    if stats.started is None:
        return ["Nothing has started yet."]
    waiting = sum(row.outcome is None and not row.running for row in stats.rows.values())
    lines = [f"Snapshot at {clock(at)}, {duration(at - stats.began)} after the start:"]
    lines += [item_row(row, stats, at) for row in stats.running]
    lines.append(f"  {waiting} waiting, {len(stats.running)} running, {stats.over} ended")
    return [*lines, *progress_rows(stats, at)]


def progress_rows(stats: RunStats, at: float) -> list[str]:
    """The progress, wrapped for places without a footer."""
    return [f"  {row}" for row in _wrap(progress_parts(stats, at), SNAPSHOT_COLUMNS)]


def item_row(row: ItemStats, stats: RunStats, at: float) -> str:
    """`  LLD-42    N3_review      round 2     12k tokens    $0.03   1m 05s  SLOW`."""
    where = f"{_node(row, stats):<13}  {f'round {row.round}' if row.round else '':<8}"
    used = "" if stats.keyless else f"{tokens(row.usage.tokens):>5} tokens  {dollars(row.cost):>7}  "
    used += f"{duration(row.age(stats.item_clock(at))):>6}"
    return f"  {row.item:<8}  {where}  {used}  {_note(row, stats)}".rstrip()


def _node(row: ItemStats, stats: RunStats) -> str:
    """Where the item is; a program of `agentos exec` has no nodes."""
    return row.node or ("running" if stats.started and is_exec(stats.started.workflow) else "starting")


def _note(row: ItemStats, stats: RunStats) -> str:
    """The end of an item's row: that it is slow, or that it waits for a key."""
    return row.quiet_level or (WAITS_FOR_KEY if row in stats.waiting_for_keys else "")


def _narrow_item_row(row: ItemStats, stats: RunStats, at: float, columns: int) -> str:
    """The most detailed form of the row that fits; that an item is slow or waits, and for how long, is dropped last."""
    age = duration(row.age(stats.item_clock(at)))
    note = f"  {_note(row, stats)}".rstrip()
    node = _node(row, stats)
    forms = (
        item_row(row, stats, at),
        f"  {row.item:<8}  {node:<13}  {f'round {row.round}' if row.round else '':<8}  {age:>6}{note}",
        f"  {row.item:<8}  {node:<13}  {age:>6}{note}",
        f"  {row.item}  {age}{note}",
    )
    return next((form for form in forms if len(form) <= columns), forms[-1])


def progress_parts(stats: RunStats, at: float) -> list[str]:
    """The parts of the progress, most important first: the last ones are dropped if space is short."""
    total = len(stats.rows)
    return [
        part
        for part in (
            f"{bar(stats.over, total)} {stats.over}/{total} workflows complete",
            _activity(stats),
            time_left(stats, at),
            *(
                ()
                if stats.keyless
                else (_keys(stats, at), _cost(stats, at), f"{tokens(stats.usage.tokens)} tokens")
            ),
        )
        if part
    ]


def time_left(stats: RunStats, at: float) -> str:
    if stats.over == len(stats.rows):
        return ""
    seconds = estimate(stats, at).seconds_left
    return "time left ?" if seconds is None else f"about {duration(seconds)} left"


def truncated(text: str, columns: int) -> str:
    """The text cut to this width; wide characters count as two columns."""
    text = one_line(text)
    if text.isascii():
        return text if len(text) <= columns else text[: columns - 1] + "…"
    kept, width = "", 0
    for character in text:
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > columns:
            return kept
        kept += character
    return kept


def rows_taken(rows: list[str], columns: int) -> int:
    """How many screen rows these take on a terminal that rewraps rows to this width."""
    return sum(max(1, math.ceil(len(row) / max(1, columns))) for row in rows)


def _activity(stats: RunStats) -> str:
    if stats.stopped is not None:
        return "stopping"
    if stats.suspended_at is not None:
        return "SUSPENDED (fg)"
    if stats.paused is not None:
        return "PAUSED (agentos resume)"
    if stats.workers < 2:
        return ""
    waiting = len(stats.waiting_for_keys)
    busy = f"{len(stats.running) - waiting} of {count(stats.workers, 'worker')} busy"
    return f"{busy}, {waiting} waiting for a key" if waiting else busy


def _keys(stats: RunStats, at: float) -> str:
    total = len(stats.started.keys) if stats.started else 0
    cooling = sorted((until, key) for key, until in stats.cooling_down.items() if until > at)
    in_use = f"keys in use: {len(set(stats.held.values()))}/{total}"
    if stats.paced_until > at:
        return f"{in_use}, all at their limits, next call at {clock(stats.paced_until, at)}"
    if not cooling:
        return in_use
    until, key = cooling[0]
    others = f" and {len(cooling) - 1} more" if len(cooling) > 1 else ""
    return f"{in_use}, {key}{others} rate limited until {clock(until, at)}"


def _cost(stats: RunStats, at: float) -> str:
    expected = estimate(stats, at).cost
    total = f" of about {dollars(expected)}" if stats.cost and expected is not None else ""
    return f"cost {dollars(stats.cost)}{total}"


def _wrap(parts: list[str], columns: int) -> list[str]:
    rows = [parts[0]]
    for part in parts[1:]:
        joined = f"{rows[-1]} | {part}"
        if len(joined) <= columns:
            rows[-1] = joined
        else:
            rows.append(part)
    return rows
