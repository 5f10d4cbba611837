"""Compares two runs side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.format import count, dollars, duration, name_list
from agentos.outputs.item_list import MANY
from agentos.outputs.report.facts import plain, waited
from agentos.outputs.summary import overhead, overhead_text

UNCHANGED = "="


@dataclass(frozen=True, slots=True)
class _Figure:
    """One line of the comparison: its name, its text for each run, and its values (None if not comparable)."""

    name: str
    texts: tuple[str, str]
    values: tuple[float | None, float | None] = (None, None)


def comparison(first: RunRecord, second: RunRecord) -> Iterator[str]:
    """One line per figure with the difference, then every item with a different result, grouped if they are many."""
    figures = list(_figures(first, second))
    width = max(len(figure.name) for figure in figures)
    columns = [max(len(figure.texts[at]) for figure in figures) for at in (0, 1)]
    for figure in figures:
        left, right = (text.rjust(columns[at]) for at, text in enumerate(figure.texts))
        yield f"{figure.name:<{width}}  {left}  {right}  {_difference(figure)}".rstrip()
    different = list(_differences(first, second))
    if not first.stats.rows.keys() & second.stats.rows.keys():
        yield "The runs have no items in common."
    else:
        yield "Items with different results:" if different else "All common items had the same result."
    yield from different


def comparison_json(first: RunRecord, second: RunRecord) -> dict[str, object]:
    """The same for programs: every figure as a pair of values, None if one is unknown."""
    figures = {
        figure.name.replace(" (429)", "").replace(" ", "_"): list(
            figure.texts if figure.values == (None, None) else figure.values
        )
        for figure in _figures(first, second)
    }
    figures["overhead"] = [_rounded(overhead(record.stats)) for record in (first, second)]
    before, rows = first.stats.rows, second.stats.rows
    items = [
        {"item": name, "results": [first.status_of(before[name]), second.status_of(row)]}
        for name, row in rows.items()
        if name in before
    ]
    changed = [item for item in items if len(set(item["results"])) > 1]
    return {"figures": figures, "common_items": len(items), "different": changed}


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)


def _figures(first: RunRecord, second: RunRecord) -> Iterator[_Figure]:
    both = (first, second)
    yield _Figure("run", _pair(plain(record.run) for record in both))
    yield _Figure(
        "workflow",
        _pair(plain(record.stats.started.workflow) if record.stats.started else "?" for record in both),
    )
    yield _Figure("state", _pair(_state(record) for record in both))
    yield _count("workers", (record.stats.started.workers if record.stats.started else 0 for record in both))
    yield _count("keys", (len(record.timeline.keys) for record in both))
    yield _count("items", (len(record.stats.rows) for record in both))
    yield _count("approved", (len(record.stats.with_verdict(Verdict.APPROVED)) for record in both))
    yield _count("need revision", (len(record.stats.with_verdict(Verdict.NEEDS_REVISION)) for record in both))
    yield _count("failed", (len(record.stats.with_ending(Ending.FAILED)) for record in both))
    yield _Figure("time", _pair(duration(record.seconds) for record in both), (first.seconds, second.seconds))
    yield _Figure(
        "waited for keys", _pair(duration(waited(record)) for record in both), (waited(first), waited(second))
    )
    yield _count("calls", (record.stats.usage.calls for record in both))
    yield _count("refusals (429)", (record.stats.refusals for record in both))
    yield _count("tokens in", (record.stats.usage.input_tokens for record in both))
    yield _count("from the cache", (record.stats.usage.cache_read_tokens for record in both))
    yield _count("tokens out", (record.stats.usage.output_tokens for record in both))
    yield _Figure(
        "cost", _pair(dollars(record.stats.cost) for record in both), (first.stats.cost, second.stats.cost)
    )
    yield _Figure(
        "overhead", _pair(overhead_text(record.stats) if record.stats.ended else "?" for record in both)
    )


def _state(record: RunRecord) -> str:
    if record.stats.ended:
        return f"exit {record.stats.ended.exit_code}"
    return "running" if record.alive else "killed"


def _pair(texts: Iterator[str]) -> tuple[str, str]:
    first, second = texts
    return first, second


def _count(name: str, numbers: Iterator[int]) -> _Figure:
    first, second = numbers
    return _Figure(name, (f"{first:,}", f"{second:,}"), (first, second))


def _difference(figure: _Figure) -> str:
    first, second = figure.values
    if first is None or second is None:
        return ""
    if figure.texts[0] == figure.texts[1]:
        return UNCHANGED
    return f"{100 * (second - first) / first:+.0f} %" if first else "new"


def _differences(first: RunRecord, second: RunRecord) -> Iterator[str]:
    rows = first.stats.rows
    changes = {
        plain(name): f"{before}, then {now}"
        for name, row in second.stats.rows.items()
        if name in rows and (before := first.status_of(rows[name])) != (now := second.status_of(row))
    }
    if len(changes) <= MANY:
        yield from (f"  {name}: {change}" for name, change in changes.items())
        return
    for change in dict.fromkeys(changes.values()):
        names = [name for name, found in changes.items() if found == change]
        yield f"  {count(len(names), 'item')}: {change} ({name_list(names)})"
