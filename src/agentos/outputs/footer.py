"""What stands below the lines of a run: its items at work, its progress."""

import math
import unicodedata
from dataclasses import dataclass

from agentos.core.run_state.eta import estimate
from agentos.core.run_state.run_stats import ItemStats, RunStats, bar
from agentos.core.text.line_assembler import one_line
from agentos.outputs.format import clock, count, dollars, duration, tokens

NARROWEST, LOWEST = 20, 4
# Eighty, without who speaks and two spaces.
SNAPSHOT_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class TerminalSize:
    columns: int
    lines: int

    @property
    def too_small(self) -> bool:
        return self.columns < NARROWEST or self.lines < LOWEST


def footer(stats: RunStats, at: float, size: TerminalSize) -> list[str]:
    """At most half the screen, no row as wide as it; nothing before the run has begun or when there is no room."""
    if stats.started is None or stats.ended is not None or size.too_small:
        return []
    room, columns = size.lines // 2, size.columns - 1
    progress = _wrapped(progress_parts(stats, at), columns)[: max(1, min(3, room // 2))]
    rows = [_narrowed(row, stats.present(at), columns) for row in stats.running]
    left = room - len(progress)
    if len(rows) > left:
        hidden = len(rows) - max(0, left - 1)
        rows = [*rows[: left - 1], f"  ... and {hidden} more at work"] if left > 0 else []
    return [fitted(row, columns) for row in (*rows, *progress)]


def snapshot(stats: RunStats, at: float) -> list[str]:
    """The same at full length, for whoever pressed a key."""
    if stats.started is None:
        return ["Nothing has begun yet."]
    waiting = sum(row.outcome is None and not row.running for row in stats.rows.values())
    lines = [f"Snapshot at {clock(at)}, {duration(at - stats.began)} after the start:"]
    lines += [item_row(row, stats.present(at)) for row in stats.running]
    lines.append(f"  {waiting} waiting, {len(stats.running)} at work, {stats.over} ended")
    return [*lines, *progress_rows(stats, at)]


def progress_rows(stats: RunStats, at: float) -> list[str]:
    """How far it has come and what it waits for, where there is no bottom of a screen."""
    return [f"  {row}" for row in _wrapped(progress_parts(stats, at), SNAPSHOT_COLUMNS)]


def item_row(row: ItemStats, at: float) -> str:
    """`  LLD-42    N3_review      round 2     12k tokens    $0.03   1m 05s  SLOW`."""
    where = f"{row.node or 'starting':<13}  {f'round {row.round}' if row.round else '':<8}"
    used = f"{tokens(row.usage.tokens):>5} tokens  {dollars(row.cost):>7}  {_age(row, at):>6}"
    return f"  {row.item:<8}  {where}  {used}  {row.quiet_level}".rstrip()


def _narrowed(row: ItemStats, at: float, columns: int) -> str:
    """Where the whole row has no room: what is slow, and for how long, before what it used."""
    quiet = f"  {row.quiet_level}" if row.quiet_level else ""
    node = row.node or "starting"
    ways = (
        item_row(row, at),
        f"  {row.item:<8}  {node:<13}  {f'round {row.round}' if row.round else '':<8}  {_age(row, at):>6}{quiet}",
        f"  {row.item:<8}  {node:<13}  {_age(row, at):>6}{quiet}",
        f"  {row.item}  {_age(row, at)}{quiet}",
    )
    return next((way for way in ways if len(way) <= columns), ways[-1])


def _age(row: ItemStats, at: float) -> str:
    return duration(row.age(at))


def progress_parts(stats: RunStats, at: float) -> list[str]:
    """The bar first; what follows is left out from the end where there is no room."""
    total = len(stats.rows)
    return [
        part
        for part in (
            f"{bar(stats.over, total)} {stats.over}/{total} workflows complete",
            _standing(stats),
            time_left(stats, at),
            _keys(stats, at),
            _cost(stats, at),
            f"{tokens(stats.usage.tokens)} tokens",
        )
        if part
    ]


def time_left(stats: RunStats, at: float) -> str:
    if stats.over == len(stats.rows):
        return ""
    seconds = estimate(stats, at).seconds_left
    return "time left ?" if seconds is None else f"about {duration(seconds)} left"


def fitted(text: str, columns: int) -> str:
    """Cut where the screen ends; wide characters count as two."""
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
    """How many rows of a screen this wide they take, if its terminal wraps them anew."""
    return sum(max(1, math.ceil(len(row) / max(1, columns))) for row in rows)


def _standing(stats: RunStats) -> str:
    if stats.stopped is not None:
        return "stopping"
    if stats.suspended_at is not None:
        return "STANDING STILL (fg)"
    if stats.paused is not None:
        return "PAUSED (agentos resume)"
    return f"{len(stats.running)} of {count(stats.workers, 'worker')} busy" if stats.workers > 1 else ""


def _keys(stats: RunStats, at: float) -> str:
    total = len(stats.started.keys) if stats.started else 0
    resting = sorted((until, key) for key, until in stats.cooling_down.items() if until > at)
    said = f"keys in use: {len(set(stats.held.values()))}/{total}"
    if stats.paced_until > at:
        return f"{said}, each at its limit, next call at {clock(stats.paced_until, at)}"
    if not resting:
        return said
    until, key = resting[0]
    others = f" and {len(resting) - 1} more" if len(resting) > 1 else ""
    return f"{said}, {key}{others} resting until {clock(until, at)}"


def _cost(stats: RunStats, at: float) -> str:
    expected = estimate(stats, at).cost
    rest = f" of about {dollars(expected)}" if stats.cost and expected is not None else ""
    return f"cost {dollars(stats.cost)}{rest}"


def _wrapped(parts: list[str], columns: int) -> list[str]:
    rows = [parts[0]]
    for part in parts[1:]:
        joined = f"{rows[-1]} | {part}"
        if len(joined) <= columns:
            rows[-1] = joined
        else:
            rows.append(part)
    return rows
