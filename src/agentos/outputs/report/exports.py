"""Renders a report for other programs: as CSV, one row per item, and as JUnit XML, one test case per item."""

import csv
import io
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.facts import ItemFacts, item_facts, plain, remarks

HEADER = (
    "item",
    "title",
    "state",
    "rounds",
    "attempts",
    "started_after_seconds",
    "seconds",
    "waited_seconds",
    "calls",
    "refusals",
    "input_tokens",
    "output_tokens",
    "cost",
    "error",
    "result",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasons",
    "failures",
)
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
PASSED, SKIPPED, FAILURE, ERROR = "passed", "skipped", "failure", "error"


def render_csv(record: RunRecord) -> str:
    """The CSV report. An item's start is relative to the start of the run; the cost is in US dollars, empty if unknown."""
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
        facts.cache_read_tokens,
        facts.cache_write_tokens,
        _escape_formula(facts.reasons),
        facts.failures,
    ]


def _escape_formula(text: str) -> str:
    """Prefix text that a spreadsheet would evaluate as a formula with an apostrophe."""
    return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text


def render_junit(record: RunRecord) -> str:
    """The JUnit report. Approved items pass, failed ones fail, waiting and unapproved ones are skipped."""
    cases = [(facts, _result(facts)) for facts in item_facts(record)]
    results = [result for _, result in cases]
    workflow = plain(record.stats.started.workflow) if record.stats.started else "unknown"
    counts = {
        "tests": str(len(cases)),
        "failures": str(results.count(FAILURE)),
        "errors": str(results.count(ERROR)),
        "skipped": str(results.count(SKIPPED)),
        "time": f"{record.seconds:.3f}",
    }
    suites = ET.Element("testsuites", {"name": "agentos", **counts})
    began = datetime.fromtimestamp(record.stats.began, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    suite = ET.SubElement(suites, "testsuite", {"name": f"agentos {workflow}", "timestamp": began, **counts})
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", {"name": "run", "value": plain(record.run)})
    for facts, result in cases:
        _case(suite, workflow, facts, result)
    for remark in remarks(record):
        ET.SubElement(suite, "system-err").text = remark.text + remark.command
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _result(facts: ItemFacts) -> str:
    outcome = facts.outcome
    if outcome is None:
        return ERROR if facts.state == "killed" else SKIPPED
    if outcome.ending is Ending.FAILED:
        return FAILURE
    approved = outcome.ending is Ending.FINISHED and outcome.verdict is Verdict.APPROVED
    return PASSED if approved else SKIPPED


def _case(suite: ET.Element, workflow: str, facts: ItemFacts, result: str) -> None:
    name = f"{facts.item} {facts.title}".strip()
    case = ET.SubElement(
        suite,
        "testcase",
        {"classname": f"agentos.{workflow}", "name": name, "time": f"{facts.seconds:.3f}"},
    )
    if result != PASSED:
        element = ET.SubElement(case, result, {"message": facts.error or facts.state})
        element.text = (
            "\n".join(plain(line) for line in facts.outcome.details) if facts.outcome else facts.node
        )
    if facts.result:
        ET.SubElement(case, "system-out").text = facts.result
