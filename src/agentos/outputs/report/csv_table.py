"""A report as CSV: a row an item."""

import csv
import io

from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.facts import ItemFacts, item_facts

HEAD = (
    "item",
    "title",
    "state",
    "rounds",
    "attempts",
    "began",
    "seconds",
    "waited",
    "calls",
    "refusals",
    "input_tokens",
    "output_tokens",
    "cost",
    "error",
    "result",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(record: RunRecord) -> str:
    """Times in seconds, `began` from the beginning of the run; an unknown cost is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(_cells(facts) for facts in item_facts(record))
    return text.getvalue()


def _cells(facts: ItemFacts) -> list[str | int]:
    return [
        _inert(facts.item),
        _inert(facts.title),
        facts.state,
        facts.rounds,
        facts.attempts,
        "" if facts.began is None else f"{facts.began:.3f}",
        f"{facts.seconds:.3f}",
        f"{facts.waited:.3f}",
        facts.calls,
        facts.refusals,
        facts.input_tokens,
        facts.output_tokens,
        "" if facts.cost is None else f"{facts.cost:.6f}",
        _inert(facts.error),
        _inert(facts.result),
    ]


def _inert(text: str) -> str:
    """A spreadsheet takes a cell that begins like a formula for one: an apostrophe keeps it a text."""
    return f"'{text}" if text.lstrip().startswith(FORMULA) else text
