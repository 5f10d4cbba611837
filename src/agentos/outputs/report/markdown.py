"""Renders a report as Markdown, and appends it to the step summary of GitHub Actions."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.run_state.run_record import RunRecord
from agentos.core.run_state.timeline import Lane, Span, SpanKind
from agentos.outputs.format import dollars, duration
from agentos.outputs.report.facts import (
    ReportFact,
    headline,
    item_facts,
    key_facts,
    log_entries,
    plain,
    remarks,
    run_facts,
    tick_label,
)

CELLS = 60
MAX_ITEMS = 100
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
WAIT, UNAVAILABLE, CALL, REFUSED, WORK = "~", "/", "=", "!", "-"
# GitHub does not show the summary of a step if it is larger.
MAX_STEP_SUMMARY = 1024 * 1024  # bytes
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def render_markdown(record: RunRecord) -> str:
    lines = [
        f"# {safe(headline(record))}",
        "",
        *(
            line
            for remark in remarks(record)
            for line in (f"> {safe(remark.text)}{code(remark.command)}", "")
        ),
        *_table(("", ""), ()),
        *(f"| {safe(fact.name)} | {_in_table(fact)} |" for fact in run_facts(record)),
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
        "## Log",
        "",
        *(f"- {tick_label(round(entry.seconds, 1))}: {safe(entry.text)}" for entry in log_entries(record)),
    ]
    return "\n".join([*lines, ""])


def safe(text: str) -> str:
    """Escape text so that it creates no table, link, mention, image or tag."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _SPECIAL.sub(r"\\\1", text)
    return text.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def code(text: str) -> str:
    """A command as a code span that can be copied verbatim; empty for an empty text."""
    longest = max((len(found) for found in re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def _in_table(fact: ReportFact) -> str:
    # The only character that must be escaped in a table even inside code.
    return code(fact.text).replace("|", "\\|") if fact.is_command else safe(fact.text)


def _items(record: RunRecord) -> Iterator[str]:
    reviewing = record.stats.reviewing
    heads = (
        "Item",
        "Title",
        "State",
        "Rounds:" if reviewing else "Attempts:",
        "Time:",
        "Waited:",
        "Calls:",
        "Tokens:",
        "Cost:",
        "Result",
    )
    rows = (
        (
            facts.item,
            facts.title,
            facts.state,
            str(facts.rounds if reviewing else facts.attempts),
            duration(facts.seconds),
            duration(facts.waited),
            str(facts.calls),
            f"{facts.input_tokens + facts.output_tokens:,}",
            dollars(facts.cost),
            "; ".join(part for part in (facts.error or facts.result, facts.reasons) if part),
        )
        for facts in item_facts(record)
    )
    yield from _table(heads, rows)


def _keys(record: RunRecord) -> Iterator[str]:
    rows = (
        (
            key.key,
            str(key.calls),
            str(key.refusals),
            str(key.failures),
            duration(key.used),
            duration(key.unavailable),
            key.state,
        )
        for key in key_facts(record)
    )
    yield from _table(("Key", "Calls:", "Refused:", "Failed:", "In use:", "Unavailable:", "State"), rows)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A heading that ends with a colon marks a column of numbers."""
    yield f"| {' | '.join(head.rstrip(':') for head in heads)} |"
    yield f"| {' | '.join('---:' if head.endswith(':') else '---' for head in heads)} |"
    for row in rows:
        yield f"| {' | '.join(safe(cell) for cell in row)} |"


class StepSummary:
    """A listener that appends the report to $GITHUB_STEP_SUMMARY; if it cannot be written, the run only prints a warning."""

    def __init__(
        self, run: str, path: Path, redact: Callable[[str], str], say: Callable[[str], None]
    ) -> None:
        self._record = RunRecord(run)
        self._path = path
        self._redact = redact
        self._say = say

    def on_event(self, event: events.Event, at: float) -> None:
        self._record.handle(event, at)
        if isinstance(event, events.RunEnded):
            self._append(self._redact(render_markdown(self._record)).encode(errors="replace"))

    def close(self) -> None:
        pass

    def _append(self, content: bytes) -> None:
        """Append to what other commands of the step have written."""
        try:
            with open(self._path, "ab") as file:
                space = MAX_STEP_SUMMARY - file.tell()
                file.write(content if len(content) <= space else _shortened(content, space))
        except OSError as error:
            self._say(f"[COORDINATOR] Cannot write {self._path} (GITHUB_STEP_SUMMARY): {error.strerror}")


def _shortened(content: bytes, space: int) -> bytes:
    """The lines that fit, and a last one that says that lines are missing."""
    last = b"\n\nShortened: GitHub shows no more. Full report: `agentos report`\n"
    kept = content[: max(0, space - len(last))].rpartition(b"\n")[0]
    return kept + last if len(last) <= space else b""


def render_text_timeline(record: RunRecord) -> list[str]:
    """One line per item and key, one letter per node, and a legend."""
    timeline = record.timeline
    if not timeline.items:
        return []
    names = sorted({span.label for lane in timeline.items.values() for span in lane.of(SpanKind.NODE)})
    letters = {name: LETTERS[number % len(LETTERS)] for number, name in enumerate(names)}
    items = list(timeline.items.values())
    width = max(len(plain(lane.name)) for lane in (*items, *timeline.keys.values()))
    lines = [
        f"{plain(lane.name):<{width}} |{_draw(record, lane, letters)}|"
        for lane in (*items[:MAX_ITEMS], *timeline.keys.values())
    ]
    more = [f"({len(items) - MAX_ITEMS} more items)"] if len(items) > MAX_ITEMS else []
    end = tick_label(round(timeline.last - timeline.began, 1))
    scale = f"{'':<{width}}  0{end:>{CELLS - 1}}"
    legend = [f"{letter} {plain(name)}" for name, letter in letters.items()]
    legend += [
        f"{WAIT} waiting for a key",
        f"{CALL} call",
        f"{REFUSED} refused or failed",
        f"{UNAVAILABLE} unavailable",
    ]
    return [*lines, *more, scale, ", ".join(legend)]


def _draw(record: RunRecord, lane: Lane, letters: dict[str, str]) -> str:
    timeline = record.timeline
    total = max(timeline.last - timeline.began, 0.001)
    cells = [" "] * CELLS
    for span in lane.layers():
        first = int((span.began - timeline.began) / total * CELLS)
        last = int((span.until(timeline.last) - timeline.began) / total * CELLS)
        for cell in range(first, min(max(last, first + 1), CELLS)):
            cells[cell] = _symbol(span, letters)
    return "".join(cells)


def _symbol(span: Span, letters: dict[str, str]) -> str:
    match span.kind:
        case SpanKind.NODE:
            return letters[span.label]
        case SpanKind.WAIT:
            return WAIT
        case SpanKind.CALL:
            return CALL
        case SpanKind.REFUSED | SpanKind.FAILED:
            return REFUSED
        case SpanKind.COOLDOWN | SpanKind.SPENT | SpanKind.QUARANTINE:
            return UNAVAILABLE
        case _:
            return WORK
