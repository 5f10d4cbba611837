"""Two runs side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.format import dollars, duration
from agentos.outputs.report.facts import plain, waited
from agentos.outputs.summary import overhead_words

SAME = "="


@dataclass(frozen=True, slots=True)
class _Figure:
    """One line: what it is called, how it is shown, what it is in each run; None where nobody knows."""

    name: str
    shown: tuple[str, str]
    values: tuple[float | None, float | None] = (None, None)


def comparison(first: RunRecord, second: RunRecord) -> Iterator[str]:
    """A line a figure, with the difference; then every item that went differently."""
    figures = list(_figures(first, second))
    width = max(len(figure.name) for figure in figures)
    columns = [max(len(figure.shown[at]) for figure in figures) for at in (0, 1)]
    for figure in figures:
        left, right = (text.rjust(columns[at]) for at, text in enumerate(figure.shown))
        yield f"{figure.name:<{width}}  {left}  {right}  {_difference(figure)}".rstrip()
    different = list(_different(first, second))
    if not first.stats.rows.keys() & second.stats.rows.keys():
        yield "No item is in both."
    else:
        yield "Items that went differently:" if different else "Every item that is in both went the same way."
    yield from different


def _figures(first: RunRecord, second: RunRecord) -> Iterator[_Figure]:
    both = (first, second)
    yield _Figure("run", _texts(plain(record.run) for record in both))
    yield _Figure(
        "workflow", _texts(plain(s.stats.started.workflow) if s.stats.started else "?" for s in both)
    )
    yield _Figure("state", _texts(_state(record) for record in both))
    yield _count("workers", (s.stats.started.workers if s.stats.started else 0 for s in both))
    yield _count("keys", (len(record.timeline.keys) for record in both))
    yield _count("items", (len(record.stats.rows) for record in both))
    yield _count("approved", (len(record.stats.verdicts(Verdict.APPROVED)) for record in both))
    yield _count("need revision", (len(record.stats.verdicts(Verdict.NEEDS_REVISION)) for record in both))
    yield _count("failed", (len(record.stats.ending(Ending.FAILED)) for record in both))
    yield _Figure("time", _texts(duration(s.seconds) for s in both), (first.seconds, second.seconds))
    yield _Figure(
        "waited for keys", _texts(duration(waited(s)) for s in both), (waited(first), waited(second))
    )
    yield _count("calls", (record.stats.usage.calls for record in both))
    yield _count("refusals (429)", (record.stats.refusals for record in both))
    yield _count("tokens in", (record.stats.usage.input_tokens for record in both))
    yield _count("tokens out", (record.stats.usage.output_tokens for record in both))
    yield _Figure("cost", _texts(dollars(s.stats.cost) for s in both), (first.stats.cost, second.stats.cost))
    yield _Figure("overhead", _texts(overhead_words(s.stats) if s.stats.ended else "?" for s in both))


def _state(record: RunRecord) -> str:
    if record.stats.ended:
        return f"exit {record.stats.ended.exit_code}"
    return "running" if record.alive else "killed"


def _texts(texts: Iterator[str]) -> tuple[str, str]:
    first, second = texts
    return first, second


def _count(name: str, numbers: Iterator[int]) -> _Figure:
    first, second = numbers
    return _Figure(name, (f"{first:,}", f"{second:,}"), (first, second))


def _difference(figure: _Figure) -> str:
    first, second = figure.values
    if first is None or second is None:
        return ""
    if figure.shown[0] == figure.shown[1]:
        return SAME
    return f"{100 * (second - first) / first:+.0f} %" if first else "new"


def _different(first: RunRecord, second: RunRecord) -> Iterator[str]:
    rows = first.stats.rows
    for name, row in second.stats.rows.items():
        if name in rows and (before := first.status_of(rows[name])) != (now := second.status_of(row)):
            yield f"  {plain(name)}: {before}, then {now}"
