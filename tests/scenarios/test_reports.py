"""Reports of running, finished and killed runs."""

import csv
import io
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.html import render_html

from .harness import CompletedCommand, RunHarness, wait_until

TITLE = '<script>document.title="owned"</script> | **bold** & "quoted"'
HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


def report(harness: RunHarness, *args: object) -> CompletedCommand:
    return harness.run("report", *args, program="agentos")


def hostile_issue(harness: RunHarness, number: int) -> None:
    path = harness.issue(number)
    path.write_text(path.read_text().replace(f"# Thing {number} can be used", f"# {TITLE}"))


def test_a_run_with_refusals_and_waits_is_reported_in_every_format(harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    hostile_issue(harness, 4)
    fault = {"kind": "429-minute", "nth": 3, "retry_delay": 1}
    harness.server(
        "--latency", "0.15,0.15", keys=("canary-key-alpha-9f31", "canary-key-beta-77c2"), fault=fault
    )
    assert harness.run("--all", "--parallel", 4).code == 0
    rows = list(csv.DictReader(io.StringIO(report(harness, "--format", "csv").out)))
    assert [row["item"] for row in rows] == ["LLD-1", "LLD-2", "LLD-3", "LLD-4"]
    assert sum(int(row["refusals"]) for row in rows) == 1
    assert sum(float(row["waited_seconds"]) for row in rows) == pytest.approx(
        harness.summary()["waited_seconds"], abs=0.2
    )
    suite = ET.fromstring(report(harness, "--format", "junit").out)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")
    assert f"LLD-4 {TITLE}" in [case.get("name") for case in suite.iter("testcase")]
    root = ET.fromstring(report(harness, "--format", "html").out)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    for wanted in (
        "N1_design: ",
        "N3_review: ",
        "waiting for a key (",
        "call (LLD-",
        "refused call (",
        "rate limited (",
    ):
        assert any(text.startswith(wanted) for text in titles), wanted
    text = report(harness).out
    assert "| Verdicts | 4 approved, 0 need revision |" in text and "<script>" not in text


@pytest.mark.slow
def test_a_killed_run_with_an_incomplete_last_line_is_reported_up_to_there(harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server("--latency", "60,60")
    running = harness.start("--all", "--parallel", 2)
    wait_until(lambda: len(harness.events("lease_granted")) == 2, 60)
    underway = report(harness)
    assert (
        underway.code == 0
        and "The run is in progress. This report shows its progress so far." in underway.out
    )
    assert "running" in underway.out and "| killed |" not in underway.out
    running.signal(signal.SIGKILL)
    running.process.wait()
    (run,) = harness.runs()
    with open(run / "events.jsonl", "ab") as journal:
        journal.write(b'{"at":17948,"type":"ItemEn')
    wait_until(lambda: "| killed |" in report(harness).out)
    done = report(harness, run.name, "-o", harness.root / "r.html")
    assert done.code == 0 and done.out == "" and "Wrote " in done.err and " items;" in done.err
    text = "".join(ET.parse(harness.root / "r.html").getroot().itertext())
    assert "Skipped 1 unreadable line of the journal (the last one is incomplete)" in text
    again = f"(cd {harness.project} && AGENTOS_HOME={harness.home} lld-workflow --all --parallel 2)"
    assert f"Resume with: {again}" in text, "a page is read anywhere"
    assert "killed at N1_design" in text


@pytest.mark.slow
def test_a_report_that_cannot_be_created_says_why(harness: RunHarness) -> None:
    assert report(harness).code == 5
    harness.issues(1)
    assert harness.run("--all", "--offline").code == 0
    unknown = report(harness, "20250101T000000Z")
    assert unknown.code == 5 and "list them with: agentos runs" in unknown.err
    nowhere = report(harness, "-o", harness.root / "no" / "such" / "r.html")
    assert nowhere.code == 3 and "cannot write" in nowhere.err
    assert report(harness, "--format", "pdf").code == 2
    other = report(harness, "-o", harness.root / "r.pdf")
    assert other.code == 2 and "unknown file type .pdf of r.pdf: expected .md, .html" in other.err
    (run,) = harness.runs()
    assert report(harness, run.name[:9]).code == 0
    assert report(harness, str(run)).out == report(harness).out
    (run / "events.jsonl").unlink()
    assert report(harness).code == 5


def test_the_report_is_appended_to_the_step_summary_in_ci(harness: RunHarness) -> None:
    harness.issues(1)
    summary = harness.root / "step.md"
    summary.write_text("earlier text\n")
    done = harness.run("--all", "--offline", GITHUB_STEP_SUMMARY=str(summary))
    assert done.code == 0
    text = summary.read_text()
    assert text.startswith("earlier text\n# Run ") and "| LLD-1 | Thing 1 can be used | approved |" in text
    assert text.removeprefix("earlier text\n") == report(harness).out


def test_an_unwritable_step_summary_does_not_fail_the_run(harness: RunHarness) -> None:
    harness.issues(1)
    done = harness.run("--all", "--offline", GITHUB_STEP_SUMMARY=str(harness.root / "no" / "step.md"))
    assert done.code == 0
    assert any("step.md (GITHUB_STEP_SUMMARY): No such file" in line for line in done.lines_of("COORDINATOR"))


@pytest.mark.slow
def test_runs_are_compared_and_pruned_except_live_ones(harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server("--latency", "0.05,0.05")
    for _ in range(2):
        assert harness.run("1", "--fresh").code == 0
    compared = harness.run("runs", "compare", program="agentos")
    assert compared.code == 0 and "All common items had the same result." in compared.out
    assert [line.split()[0] for line in compared.lines if line.startswith(("time", "calls", "cost"))] == [
        "time",
        "calls",
        "cost",
    ]
    harness.server("--latency", "60,60")
    running = harness.start("2")
    wait_until(lambda: "LLD-2" in [event["item"] for event in harness.events("lease_granted")], 60)
    live_run = harness.runs()[-1]
    harness.server("--latency", "0.05,0.05")
    assert harness.run("1", "--fresh").code == 0
    listed = harness.run("runs", "prune", "--keep", 1, "--dry-run", program="agentos")
    assert "Would remove 2 runs" in listed.out and len(harness.runs()) == 4
    done = harness.run("runs", "prune", "--keep", 1, program="agentos")
    assert done.code == 0 and "Removed 2 runs" in done.out
    assert len(harness.runs()) == 2 and live_run in harness.runs()
    running.signal(signal.SIGINT)
    running.wait()
    assert (live_run / "summary.json").exists()


@pytest.mark.parametrize(
    ("args", "removed"),
    [(["--older-than", "30d"], 2), (["--max-size", "25kB"], 3), (["--keep", "4"], 1), ([], 1)],
)
def test_each_retention_limit_prunes_independently(
    harness: RunHarness, args: list[str], removed: int
) -> None:
    """Five runs of 10 kB: from today and 10, 20, 40 and 100 days ago."""
    runs = harness.home / "logs" / "parallel"
    now = time.time()
    for days in (0, 10, 20, 40, 100):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now - days * 86400))
        (runs / stamp).mkdir(parents=True)
        (runs / stamp / "events.jsonl").write_bytes(b"x" * 10_000)
        subprocess.run(["touch", "-d", f"@{now - days * 86400}", runs / stamp], check=True)
    vague = harness.run("runs", "prune", "--older-than", "5", program="agentos")
    assert vague.code == 2 and "'5' has no unit: expected a value such as 12h or 30d" in vague.err
    assert harness.run("runs", "prune", *args, program="agentos").code == 0
    assert len(list(runs.iterdir())) == 5 - removed


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no browser found; other tests parse the page strictly")
def test_a_browser_renders_the_page_as_written(harness: RunHarness, tmp_path: Path) -> None:
    hostile_issue(harness, 1)
    assert harness.run("--all", "--offline").code == 0
    file = tmp_path / "r.html"
    assert report(harness, "-o", file).code == 0
    shown = in_browser(file, tmp_path)
    assert "<title>Run " in shown and "owned</title>" not in shown
    assert "&lt;script&gt;document.title=" in shown
    assert "1 of 1 items" in shown, "the policy lets our own script run"
    assert shown.count("<script") == 1 and shown.count("<rect") >= 10


_CLICKS = """<script>
const press = (text) => Array.from(document.querySelectorAll('button'))
  .find((button) => button.textContent.startsWith(text)).click();
press('Time'); press('Time');
press('approved');
document.body.dataset.shown = Array.from(document.querySelectorAll('tbody tr[data-state]'))
  .filter((row) => !row.hidden).map((row) => row.cells[0].textContent).join(' ');
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser found; other tests parse the page strictly")
def test_the_items_can_be_filtered_by_state_and_sorted_by_a_column(tmp_path: Path) -> None:
    record = RunRecord("run")
    record.handle(events.RunStarted("run", "lld", "/p", ("LLD-1", "LLD-2", "LLD-3"), 1, ("key-1",)), 0.0)
    approved, revise = (Outcome(Ending.FINISHED, verdict, 1) for verdict in Verdict)
    for item, outcome, seconds in (
        ("LLD-1", approved, 9.0),
        ("LLD-2", revise, 50.0),
        ("LLD-3", approved, 100.0),
    ):
        record.handle(events.ItemEnded(item, outcome, seconds, Usage(), 1), 200.0)
    file = tmp_path / "r.html"
    page = re.sub("<meta http-equiv[^>]*>", "", render_html(record)).replace("</body>", _CLICKS)
    file.write_text(page, "utf-8")
    shown = in_browser(file, tmp_path)
    assert (
        'data-shown="LLD-3 LLD-1"' in shown and "2 of 3 items" in shown and 'aria-sort="descending"' in shown
    )


def in_browser(file: Path, folder: Path) -> str:
    """The page as a browser has built it."""
    return subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
