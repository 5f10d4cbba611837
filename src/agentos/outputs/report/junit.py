"""Renders a report as JUnit XML, for tools that display test results."""

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from agentos.core.protocol.results import Ending, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.facts import ItemFacts, item_facts, plain, remarks

PASSED, SKIPPED, FAILURE, ERROR = "passed", "skipped", "failure", "error"


def render_junit(record: RunRecord) -> str:
    """Approved items pass and failed ones fail; waiting and unapproved ones are skipped, as in the exit code."""
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
        ET.SubElement(suite, "system-err").text = remark
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
