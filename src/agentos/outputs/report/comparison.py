"""Two runs side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentos.core.results import Ending, Verdict
from agentos.core.story import Story
from agentos.outputs.report.facts import plain, waited
from agentos.outputs.summary import overhead_words
from agentos.outputs.words import dollars, duration

SAME = "="


@dataclass(frozen=True, slots=True)
class _Figure:
    """One line: what it is called, how it is shown, what it is in each run; None where nobody knows."""

    name: str
    shown: tuple[str, str]
    values: tuple[float | None, float | None] = (None, None)


def comparison(first: Story, second: Story) -> Iterator[str]:
    """A line a figure, with the difference; then every item that went differently."""
    figures = list(_figures(first, second))
    width = max(len(figure.name) for figure in figures)
    columns = [max(len(figure.shown[at]) for figure in figures) for at in (0, 1)]
    for figure in figures:
        left, right = (text.rjust(columns[at]) for at, text in enumerate(figure.shown))
        yield f"{figure.name:<{width}}  {left}  {right}  {_difference(figure)}".rstrip()
    different = list(_different(first, second))
    if not first.tally.rows.keys() & second.tally.rows.keys():
        yield "No item is in both."
    else:
        yield "Items that went differently:" if different else "Every item that is in both went the same way."
    yield from different


def _figures(first: Story, second: Story) -> Iterator[_Figure]:
    both = (first, second)
    yield _Figure("run", _texts(plain(story.run) for story in both))
    yield _Figure(
        "workflow", _texts(plain(s.tally.started.workflow) if s.tally.started else "?" for s in both)
    )
    yield _Figure("state", _texts(_state(story) for story in both))
    yield _count("workers", (s.tally.started.workers if s.tally.started else 0 for s in both))
    yield _count("keys", (len(story.timeline.keys) for story in both))
    yield _count("items", (len(story.tally.rows) for story in both))
    yield _count("approved", (len(story.tally.verdicts(Verdict.APPROVED)) for story in both))
    yield _count("need revision", (len(story.tally.verdicts(Verdict.NEEDS_REVISION)) for story in both))
    yield _count("failed", (len(story.tally.ending(Ending.FAILED)) for story in both))
    yield _Figure("time", _texts(duration(s.seconds) for s in both), (first.seconds, second.seconds))
    yield _Figure(
        "waited for keys", _texts(duration(waited(s)) for s in both), (waited(first), waited(second))
    )
    yield _count("calls", (story.tally.usage.calls for story in both))
    yield _count("refusals (429)", (story.tally.refusals for story in both))
    yield _count("tokens in", (story.tally.usage.input_tokens for story in both))
    yield _count("tokens out", (story.tally.usage.output_tokens for story in both))
    yield _Figure("cost", _texts(dollars(s.tally.cost) for s in both), (first.tally.cost, second.tally.cost))
    yield _Figure("overhead", _texts(overhead_words(s.tally) if s.tally.ended else "?" for s in both))


def _state(story: Story) -> str:
    if story.tally.ended:
        return f"exit {story.tally.ended.exit_code}"
    return "running" if story.alive else "killed"


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


def _different(first: Story, second: Story) -> Iterator[str]:
    rows = first.tally.rows
    for name, row in second.tally.rows.items():
        if name in rows and (before := first.word_of(rows[name])) != (now := second.word_of(row)):
            yield f"  {plain(name)}: {before}, then {now}"
