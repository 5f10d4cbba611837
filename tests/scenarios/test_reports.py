"""Reports of real runs: under way, ended, killed."""

import csv
import io
import shutil
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from .stage import Done, Stage, until

TITLE = '<script>document.title="owned"</script> | **bold** & "quoted"'
HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


def report(stage: Stage, *words: object) -> Done:
    return stage.run("report", *words, program="agentos")


def hostile_issue(stage: Stage, number: int) -> None:
    path = stage.issue(number)
    path.write_text(path.read_text().replace(f"# Thing {number} can be used", f"# {TITLE}"))


def test_a_run_with_refusals_and_waits_is_reported_in_every_form(stage: Stage) -> None:
    stage.issues(1, 2, 3)
    hostile_issue(stage, 4)
    fault = {"kind": "429-minute", "nth": 3, "retry_delay": 1}
    stage.server(
        "--latency", "0.15,0.15", keys=("canary-key-alpha-9f31", "canary-key-beta-77c2"), fault=fault
    )
    assert stage.run("--all", "--parallel", 4).code == 0
    rows = list(csv.DictReader(io.StringIO(report(stage, "--format", "csv").out)))
    assert [row["item"] for row in rows] == ["LLD-1", "LLD-2", "LLD-3", "LLD-4"]
    assert sum(int(row["refusals"]) for row in rows) == 1
    assert sum(float(row["waited"]) for row in rows) == pytest.approx(stage.summary()["waited"], abs=0.2)
    suite = ET.fromstring(report(stage, "--format", "junit").out)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("4", "0")
    assert f"LLD-4 {TITLE}" in [case.get("name") for case in suite.iter("testcase")]
    root = ET.fromstring(report(stage, "--format", "html").out)
    said = [title.text or "" for title in root.iter(f"{SVG}title")]
    for wanted in (
        "N1_design: ",
        "N3_review: ",
        "waiting for a key (",
        "call (LLD-",
        "refused call (",
        "resting (",
    ):
        assert any(text.startswith(wanted) for text in said), wanted
    text = report(stage).out
    assert "| Verdicts | 4 approved, 0 need revision |" in text and "<script>" not in text


def test_a_killed_run_with_a_torn_last_line_is_reported_as_far_as_it_came(stage: Stage) -> None:
    stage.issues(1, 2)
    stage.server("--latency", "60,60")
    running = stage.start("--all", "--parallel", 2)
    until(lambda: len(stage.events("LeaseGranted")) == 2, 60)
    underway = report(stage)
    assert underway.code == 0 and "The run is running: this is how far it had come." in underway.out
    assert "running" in underway.out and "died here" not in underway.out
    running.signal(signal.SIGKILL)
    running.process.wait()
    (run,) = stage.runs()
    with open(run / "events.jsonl", "ab") as journal:
        journal.write(b'{"at":17948,"type":"ItemEn')
    until(lambda: "died here" in report(stage).out)
    done = report(stage, run.name, "-o", stage.root / "r.html")
    assert done.code == 0 and done.out == "" and "Written: " in done.err and " items," in done.err
    text = "".join(ET.parse(stage.root / "r.html").getroot().itertext())
    assert "1 line of the journal cannot be read (the last one was torn while it was written)" in text
    again = f"(cd {stage.project} && AGENTOS_HOME={stage.home} lld-workflow --all --parallel 2)"
    assert f"Go on with: {again}" in text, "a page is read anywhere"
    assert "died here at N1_design" in text


def test_what_cannot_be_reported_says_why(stage: Stage) -> None:
    assert report(stage).code == 5
    stage.issues(1)
    assert stage.run("--all", "--offline").code == 0
    unknown = report(stage, "20250101T000000Z")
    assert unknown.code == 5 and "see them with: agentos runs" in unknown.err
    nowhere = report(stage, "-o", stage.root / "no" / "such" / "r.html")
    assert nowhere.code == 3 and "cannot write" in nowhere.err
    assert report(stage, "--format", "pdf").code == 2
    other = report(stage, "-o", stage.root / "r.pdf")
    assert other.code == 2 and "r.pdf ends in .pdf, expected .md, .html" in other.err
    (run,) = stage.runs()
    assert report(stage, run.name[:9]).code == 0
    assert report(stage, str(run)).out == report(stage).out
    (run / "events.jsonl").unlink()
    assert report(stage).code == 5


def test_ci_gets_the_report_of_a_run_after_what_was_there(stage: Stage) -> None:
    stage.issues(1)
    summary = stage.root / "step.md"
    summary.write_text("earlier words\n")
    done = stage.run("--all", "--offline", GITHUB_STEP_SUMMARY=str(summary))
    assert done.code == 0
    text = summary.read_text()
    assert text.startswith("earlier words\n# Run ") and "| LLD-1 | Thing 1 can be used | approved |" in text
    assert text.removeprefix("earlier words\n") == report(stage).out


def test_a_step_summary_that_cannot_be_written_fails_nothing(stage: Stage) -> None:
    stage.issues(1)
    done = stage.run("--all", "--offline", GITHUB_STEP_SUMMARY=str(stage.root / "no" / "step.md"))
    assert done.code == 0
    assert any("(GITHUB_STEP_SUMMARY) cannot be written" in line for line in done.of("COORDINATOR"))


def test_runs_are_compared_and_pruned_but_never_a_living_one(stage: Stage) -> None:
    stage.issues(1, 2)
    stage.server("--latency", "0.05,0.05")
    for _ in range(2):
        assert stage.run("1", "--fresh").code == 0
    compared = stage.run("runs", "compare", program="agentos")
    assert compared.code == 0 and "Every item that is in both went the same way." in compared.out
    assert [line.split()[0] for line in compared.lines if line.startswith(("time", "calls", "cost"))] == [
        "time",
        "calls",
        "cost",
    ]
    stage.server("--latency", "60,60")
    running = stage.start("2")
    until(lambda: "LLD-2" in [event["item"] for event in stage.events("LeaseGranted")], 60)
    living = stage.runs()[-1]
    stage.server("--latency", "0.05,0.05")
    assert stage.run("1", "--fresh").code == 0
    listed = stage.run("runs", "prune", "--keep", 1, "--dry-run", program="agentos")
    assert "Would remove 2 runs" in listed.out and len(stage.runs()) == 4
    done = stage.run("runs", "prune", "--keep", 1, program="agentos")
    assert done.code == 0 and "Removed 2 runs" in done.out
    assert len(stage.runs()) == 2 and living in stage.runs()
    running.signal(signal.SIGINT)
    running.end()
    assert (living / "summary.json").exists()


@pytest.mark.parametrize(
    ("words", "gone"),
    [(["--older-than", "30d"], 2), (["--max-size", "25kB"], 3), (["--keep", "4"], 1), ([], 1)],
)
def test_each_limit_prunes_by_itself(stage: Stage, words: list[str], gone: int) -> None:
    """Five runs of 10 kB, of today, 10, 20, 40 and 100 days ago."""
    runs = stage.home / "logs" / "parallel"
    now = time.time()
    for days in (0, 10, 20, 40, 100):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now - days * 86400))
        (runs / stamp).mkdir(parents=True)
        (runs / stamp / "events.jsonl").write_bytes(b"x" * 10_000)
        subprocess.run(["touch", "-d", f"@{now - days * 86400}", runs / stamp], check=True)
    vague = stage.run("runs", "prune", "--older-than", "5", program="agentos")
    assert vague.code == 2 and "'5' of what? Expected such as 12h or 30d" in vague.err
    assert stage.run("runs", "prune", *words, program="agentos").code == 0
    assert len(list(runs.iterdir())) == 5 - gone


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="no browser here: the page is parsed strictly by the other tests")
def test_a_browser_shows_the_page_as_it_is_written(stage: Stage, tmp_path: Path) -> None:
    hostile_issue(stage, 1)
    assert stage.run("--all", "--offline").code == 0
    file = tmp_path / "r.html"
    assert report(stage, "-o", file).code == 0
    shown = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert "<title>Run " in shown and "owned</title>" not in shown
    assert "&lt;script&gt;document.title=" in shown
    assert shown.count("<script") == 0 and shown.count("<rect") >= 10
