"""Renders a report as CSV, one row per item."""

import csv
import io

from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.facts import ItemFacts, item_facts

HEADER = (
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
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render_csv(record: RunRecord) -> str:
    """Times are in seconds, `began` since the start of the run; an unknown cost is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(_cells(facts) for facts in item_facts(record))
    return text.getvalue()


def _cells(facts: ItemFacts) -> list[str | int]:
    return [
        _escape_formula(facts.item),
        _escape_formula(facts.title),
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
        _escape_formula(facts.error),
        _escape_formula(facts.result),
    ]


def _escape_formula(text: str) -> str:
    """Prefix what a spreadsheet would take for a formula with an apostrophe, so that it stays text."""
    return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text
