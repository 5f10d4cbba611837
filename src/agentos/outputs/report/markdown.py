"""A report as Markdown."""

import re
from collections.abc import Iterable, Iterator

from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.format import dollars, duration
from agentos.outputs.report.axis import tick_label
from agentos.outputs.report.facts import headline, item_facts, key_facts, moments, remarks, run_facts
from agentos.outputs.report.text_timeline import render_text_timeline

_MARKS = re.compile(r"([\\`*_{}\[\]#|~])")


def markdown(record: RunRecord) -> str:
    lines = [
        f"# {safe(headline(record))}",
        "",
        *(line for remark in remarks(record) for line in (f"> {safe(remark)}", "")),
        *_table(("", ""), ((fact.name, fact.text) for fact in run_facts(record))),
        "",
        "## Items",
        "",
        *_items(record),
        "",
        "## Timeline",
        "",
        "```text",
        *(line.replace("`", "'") for line in render_text_timeline(record)),
        "```",
        "",
        "## Keys",
        "",
        *_keys(record),
        "",
        "## What was said",
        "",
        *(f"- {tick_label(round(moment.seconds, 1))}: {safe(moment.text)}" for moment in moments(record)),
    ]
    return "\n".join([*lines, ""])


def safe(text: str) -> str:
    """A text that is shown as it is: no table, link, mention, picture or tag comes of it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKS.sub(r"\\\1", text)
    return text.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def _items(record: RunRecord) -> Iterator[str]:
    heads = ("Item", "Title", "State", "Rounds:", "Time:", "Waited:", "Calls:", "Tokens:", "Cost:", "Result")
    rows = (
        (
            facts.item,
            facts.title,
            facts.state,
            str(facts.rounds),
            duration(facts.seconds),
            duration(facts.waited),
            str(facts.calls),
            f"{facts.input_tokens + facts.output_tokens:,}",
            dollars(facts.cost),
            facts.error or facts.result,
        )
        for facts in item_facts(record)
    )
    yield from _table(heads, rows)


def _keys(record: RunRecord) -> Iterator[str]:
    rows = (
        (key.key, str(key.calls), str(key.refusals), duration(key.used), duration(key.rested), key.state)
        for key in key_facts(record)
    )
    yield from _table(("Key", "Calls:", "Refused:", "In use:", "Kept from use:", "State"), rows)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A head that ends with a colon is one of numbers."""
    yield f"| {' | '.join(head.rstrip(':') for head in heads)} |"
    yield f"| {' | '.join('---:' if head.endswith(':') else '---' for head in heads)} |"
    for row in rows:
        yield f"| {' | '.join(safe(cell) for cell in row)} |"
