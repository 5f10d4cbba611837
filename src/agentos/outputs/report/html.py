"""A report as one HTML page that needs nothing but itself."""

from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources

from agentos import __version__
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.format import dollars, duration
from agentos.outputs.report.axis import tick_label
from agentos.outputs.report.facts import (
    ItemFacts,
    headline,
    item_facts,
    key_facts,
    moments,
    remarks,
    run_facts,
)
from agentos.outputs.report.svg_timeline import described, render_svg

# No script, nothing from elsewhere: what a model wrote could do nothing here even if it were not escaped.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
BAD = ("failed", "died here")


def render_html(record: RunRecord) -> str:
    """Well-formed as XML too, so that it can be checked strictly."""
    parts = [
        "<!DOCTYPE html>",
        '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">',
        *_head(record),
        "<body>",
        f"<h1>{escape(headline(record))}</h1>",
        *(f'<p class="remark">{escape(remark)}</p>' for remark in remarks(record)),
        "<dl>",
        *(f"<dt>{escape(fact.name)}</dt><dd>{escape(fact.text)}</dd>" for fact in run_facts(record)),
        "</dl>",
        "<h2>Timeline</h2>",
        # Scrolls by itself when it is wider than the screen; with the keyboard too.
        '<figure><div class="wide" tabindex="0" role="group" aria-label="Timeline, may be scrolled">',
        render_svg(record),
        f"</div><figcaption>{escape(described(record))}</figcaption></figure>",
        "<h2>Items</h2>",
        *_items(record),
        "<h2>Keys</h2>",
        *_keys(record),
        "<h2>What was said</h2>",
        '<ol class="said">',
        *(
            f"<li><span>{tick_label(round(moment.seconds, 1))}</span> {escape(moment.text)}</li>"
            for moment in moments(record)
        ),
        "</ol>",
        f"<footer>Made by agentos {__version__} from the run's journal.</footer>",
        "</body></html>",
    ]
    return "\n".join([*parts, ""])


def _head(record: RunRecord) -> Iterator[str]:
    style = resources.files("agentos.outputs.report").joinpath("page.css").read_text("utf-8")
    yield '<head><meta charset="utf-8" />'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1" />'
    yield '<meta name="color-scheme" content="light dark" />'
    yield f"<title>{escape(headline(record))}</title>"
    yield f"<style>{style}</style></head>"


def _items(record: RunRecord) -> Iterator[str]:
    heads = ("Item", "Title", "State", "#Rounds", "#Time", "#Waited", "#Calls", "#Tokens", "#Cost", "Result")
    yield from _table(
        "Every item: verdict, rounds, time, waiting for keys, tokens, cost",
        heads,
        (_item_cells(facts) for facts in item_facts(record)),
    )


def _item_cells(facts: ItemFacts) -> list[str]:
    tone = ' class="good"' if facts.state == "approved" else ' class="bad"' if facts.state in BAD else ""
    where = f" at {facts.node}" if facts.state in ("running", "died here") and facts.node else ""
    return [
        f'<th scope="row">{escape(facts.item)}</th>',
        f"<td>{escape(facts.title)}</td>",
        f"<td{tone}>{escape(facts.state + where)}</td>",
        *_numbers(str(facts.rounds), duration(facts.seconds), duration(facts.waited), str(facts.calls)),
        *_numbers(f"{facts.input_tokens + facts.output_tokens:,}", dollars(facts.cost)),
        f"<td>{escape(facts.error or facts.result)}</td>",
    ]


def _keys(record: RunRecord) -> Iterator[str]:
    heads = ("Key", "#Calls", "#Refused", "#In use", "#Kept from use", "State")
    yield from _table(
        "Every key: calls, refusals, and how long it was used and kept from use",
        heads,
        (
            [
                f'<th scope="row">{escape(key.key)}</th>',
                *_numbers(str(key.calls), str(key.refusals), duration(key.used), duration(key.rested)),
                f"<td>{escape(key.state)}</td>",
            ]
            for key in key_facts(record)
        ),
    )


def _table(caption: str, heads: tuple[str, ...], rows: Iterable[list[str]]) -> Iterator[str]:
    """A head that begins with # is one of numbers."""
    yield f'<div class="wide" tabindex="0" role="group" aria-label="{caption}"><table><caption>{caption}</caption>'
    yield f"<thead><tr>{''.join(_head_cell(head) for head in heads)}</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{''.join(row)}</tr>"
    yield "</tbody></table></div>"


def _head_cell(head: str) -> str:
    look = ' class="n"' if head.startswith("#") else ""
    return f'<th scope="col"{look}>{head.lstrip("#")}</th>'


def _numbers(*texts: str) -> list[str]:
    return [f'<td class="n">{escape(text)}</td>' for text in texts]
