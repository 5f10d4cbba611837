"""Renders a report as Markdown, and appends it to the step summary of GitHub Actions."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agentos.core.protocol import events
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.format import dollars, duration
from agentos.outputs.report.facts import (
    headline,
    item_facts,
    key_facts,
    log_entries,
    remarks,
    run_facts,
    tick_label,
)
from agentos.outputs.report.text_timeline import render_text_timeline

# GitHub shows nothing of a step whose summary is larger.
MAX_STEP_SUMMARY = 1024 * 1024  # bytes
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~])")


def render_markdown(record: RunRecord) -> str:
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
        (key.key, str(key.calls), str(key.refusals), duration(key.used), duration(key.unavailable), key.state)
        for key in key_facts(record)
    )
    yield from _table(("Key", "Calls:", "Refused:", "In use:", "Unavailable:", "State"), rows)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A heading that ends with a colon marks a column of numbers."""
    yield f"| {' | '.join(head.rstrip(':') for head in heads)} |"
    yield f"| {' | '.join('---:' if head.endswith(':') else '---' for head in heads)} |"
    for row in rows:
        yield f"| {' | '.join(safe(cell) for cell in row)} |"


class StepSummary:
    """A listener that appends the report to $GITHUB_STEP_SUMMARY; a failure to write it is only announced."""

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
    """The lines that fit, and a last one that says so."""
    last = b"\n\nShortened: GitHub shows no more. Full report: `agentos report`\n"
    kept = content[: max(0, space - len(last))].rpartition(b"\n")[0]
    return kept + last if len(last) <= space else b""
