"""Reports in every format, with hostile text in every field."""

import base64
import csv
import hashlib
import io
import re
from xml.etree import ElementTree as ET

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage, Verdict, failed
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from agentos.core.run_state.run_record import RunRecord
from agentos.outputs.report.comparison import comparison
from agentos.outputs.report.exports import render_csv, render_junit
from agentos.outputs.report.facts import MAX_TEXT, key_facts, tick_label
from agentos.outputs.report.html import render_html
from agentos.outputs.report.markdown import render_markdown
from agentos.outputs.report.svg_timeline import MAX_ITEMS, MAX_TICKS, Axis, render_svg

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror="alert(1)">',
    "]]></style></svg><!-- &amp; --> &lt;",
    "a | b `c` [link](http://evil.example) ![p](//e) @someone #12 *x*",
    '=HYPERLINK("http://evil.example")',
    "bell\a escape\x1b[31m null\0 half\ud800 two\nlines ￾",
    "x" * 100_000,
)
HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"


def failed_run(*texts: str) -> RunRecord:
    """A run with one failed item per text, which fills every field that can hold outside text."""
    record = RunRecord("20261115T221503Z")
    items = tuple(f"LLD-{number}" for number, _ in enumerate(texts, 1))
    record.handle(
        events.RunStarted(record.run, "lld", texts[0], items, 2, ("key-1",), texts[0], "", texts), 1000.0
    )
    for at, (item, text) in enumerate(zip(items, texts, strict=True), 1001):
        record.handle(events.ItemStarted(item, 1, 1), at)
        record.handle(events.NodeStarted(item, text, 1), at + 0.1)
        record.handle(events.LeaseRequested(item, "draft-1", ("gemini",)), at + 0.2)
        record.handle(events.LeaseGranted(item, "key-1", f"lease-{at}", 0.3), at + 0.5)
        record.handle(events.KeyLimited("key-1", 1.0, text), at + 0.6)
        record.handle(events.ItemEnded(item, failed(text, (text,)), 0.9, Usage(1, 2, 3), 1), at + 0.9)
    record.handle(events.RunEnded(1, 9.0, 0.3), 1000.0 + len(texts) + 1)
    return record


def approved_run(
    seconds: float = 2.0, verdict: Verdict = Verdict.APPROVED, result: str = "docs/lld/active/LLD-001.md"
) -> RunRecord:
    record = RunRecord("20261115T221504Z")
    record.handle(
        events.RunStarted(record.run, "lld", "/p", ("LLD-1",), 1, ("key-1",), titles=("One",)), 1000.0
    )
    record.handle(events.ItemStarted("LLD-1", 1, 1), 1000.5)
    outcome = Outcome(Ending.FINISHED, verdict, 1, result=result)
    record.handle(events.ItemEnded("LLD-1", outcome, seconds, Usage(2, 30, 4), 1), 1000.0 + seconds)
    record.handle(events.RunEnded(0, seconds, 0.0), 1000.0 + seconds)
    return record


def test_reports_count_calls_that_were_refused_apart_from_those_that_failed() -> None:
    record = RunRecord("20261115T221505Z")
    record.handle(events.RunStarted(record.run, "lld", "/p", ("LLD-1",), 1, ("key-1",)), 1000.0)
    kinds = (RefusalKind.RATE_LIMITED, RefusalKind.PROVIDER_ERROR, RefusalKind.CUT)
    for at, kind in enumerate(kinds, 1001):
        record.handle(events.LeaseGranted("LLD-1", "key-1", f"lease-{at}", 0.0), at)
        released = events.LeaseReleased("LLD-1", f"lease-{at}", 0.5, refusal=Refusal(kind, "x"))
        record.handle(released, at + 0.5)
    (key,) = key_facts(record)
    assert (key.calls, key.refusals, key.failures) == (3, 1, 2)
    (row,) = csv.DictReader(io.StringIO(render_csv(record)))
    assert (row["refusals"], row["failures"]) == ("1", "2")
    assert "| Refused | Failed |" in re.sub(" +", " ", render_markdown(record))
    root = ET.fromstring(render_html(record))
    cells = [cell.text for cell in root.iter(f"{HTML}td") if cell.get("class") == "n"]
    assert cells[:3] == ["3", "1", "2"]


def test_html_escapes_hostile_text() -> None:
    root = ET.fromstring(render_html(failed_run(*HOSTILE)))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"img", "iframe", "link", "object", "foreignObject"}
    (script,) = root.iter(f"{HTML}script")
    digest = base64.b64encode(hashlib.sha256((script.text or "").encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in _policy(root), "only our own script may run"
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    cells = ["".join(cell.itertext()) for cell in root.iter(f"{HTML}td")]
    for text in HOSTILE[:5]:
        assert text in cells


def test_the_html_page_is_self_contained() -> None:
    text = render_html(failed_run(*HOSTILE))
    root = ET.fromstring(text)
    names = {name.rpartition("}")[2] for element in root.iter() for name in element.attrib}
    assert not names & {"src", "srcset", "data", "action", "style"}
    assert {link.get("href") for link in root.iter(f"{HTML}a")} == {"#keys", "#items", "#timeline", "#log"}
    styles = "".join(element.text or "" for tag in (HTML, SVG) for element in root.iter(f"{tag}style"))
    assert styles and "url(" not in styles and "@import" not in styles
    assert _policy(root).startswith("default-src 'none'")


def _policy(root: ET.Element) -> str:
    policy = root.find(f".//{HTML}meta[@http-equiv='Content-Security-Policy']")
    assert policy is not None
    return policy.get("content", "")


def test_results_link_to_documents_as_seen_from_the_page() -> None:
    def links(result: str, folder: str = "/p/out") -> list[str | None]:
        root = ET.fromstring(render_html(approved_run(result=result), folder))
        return [link.get("href") for link in root.iter(f"{HTML}a") if "#" not in (link.get("href") or "#")]

    assert links("docs/lld/active/LLD-001.md") == ["../docs/lld/active/LLD-001.md"]
    assert links("docs/a b/é:1.md", "/p") == ["docs/a%20b/%C3%A9%3A1.md"]
    assert links("javascript:alert(1)", "/p") == ["javascript%3Aalert%281%29"]
    assert links("https://github.com/o/r/issues/7") == ["https://github.com/o/r/issues/7"]
    assert links("javascript://x/%0aalert(1)") == []
    assert links("docs/x.md", "") == []


def test_verdicts_are_coloured_and_the_keys_stand_above_the_items() -> None:
    for record, style in (
        (approved_run(), "good"),
        (approved_run(verdict=Verdict.NEEDS_REVISION), "warn"),
        (failed_run("x"), "bad"),
    ):
        root = ET.fromstring(render_html(record))
        (row,) = [row for row in root.iter(f"{HTML}tr") if row.get("data-state")]
        assert [cell.get("class") for cell in row if cell.get("class") not in (None, "n")] == [style]
    headings = [heading.get("id") for heading in root.iter(f"{HTML}h2")]
    assert headings == ["keys", "items", "timeline", "log"]
    places = {text.text: float(text.get("y", 0)) for text in root.iter(f"{SVG}text")}
    assert places["key-1"] < places["LLD-1"]


def test_reports_say_why_items_were_not_approved_and_which_files_were_skipped() -> None:
    record = RunRecord("r")
    started = events.RunStarted(
        "r", "lld", "/p", ("LLD-1", "LLD-2"), 1, ("key-1",), skipped=("issues/fix-login.md",)
    )
    record.handle(started, 1.0)
    revise = Outcome(
        Ending.FINISHED,
        Verdict.NEEDS_REVISION,
        2,
        result="docs/lld/needs-revision/LLD-001.md",
        details=("No test plan",),
    )
    record.handle(events.ItemEnded("LLD-1", revise, 1.0, Usage(), 1), 2.0)
    invalid = failed("Invalid spec format", ("the file is empty",))
    record.handle(events.ItemEnded("LLD-2", invalid, 1.0, Usage(), 1), 3.0)
    skipped = "1 file that cannot be an item (issues/fix-login.md); see: agentos doctor"
    text = render_markdown(record)
    assert "docs/lld/needs-revision/LLD-001.md; No test plan |" in text
    assert "Invalid spec format; the file is empty |" in text and f"| Skipped | {skipped} |" in text
    root = ET.fromstring(render_html(record))
    cells = ["".join(cell.itertext()) for tag in ("td", "dd") for cell in root.iter(HTML + tag)]
    assert "docs/lld/needs-revision/LLD-001.mdNo test plan" in cells and skipped in cells
    rows = list(csv.DictReader(io.StringIO(render_csv(record))))
    assert [row["reasons"] for row in rows] == ["No test plan", "the file is empty"]


def test_a_shaded_pause_is_one_that_somebody_requested() -> None:
    record = RunRecord("run")
    record.handle(events.RunStarted("run", "lld", "/p", ("LLD-1",), 1, ("key-1",)), 0.0)
    record.handle(events.PoolExhausted(1, 1), 1.0)
    record.handle(events.RunPaused(), 2.0)
    record.handle(events.RunResumed(1.0), 3.0)
    record.handle(events.PoolRestored(3.0), 4.0)
    record.handle(events.RunEnded(0, 5.0, 0.0), 5.0)
    spans = [(span.kind.value, span.began, span.ended) for span in record.timeline.run.spans]
    assert spans == [("pool exhausted", 1.0, 4.0), ("run paused", 2.0, 3.0)]
    image = ET.fromstring(render_svg(record))
    (item,) = [float(text.get("y", 0)) for text in image.iter(f"{SVG}text") if text.text == "LLD-1"]
    drawn = {bar.get("class"): bar for bar in image.iter(f"{SVG}rect") if bar.get("rx")}
    exhausted, pause = drawn["full"], drawn["pause"]
    assert float(exhausted.get("y", 0)) + float(exhausted.get("height", 0)) < item - 12, "only over the keys"
    assert float(pause.get("y", 0)) < item < float(pause.get("y", 0)) + float(pause.get("height", 0))


def test_the_html_page_is_accessible() -> None:
    root = ET.fromstring(render_html(failed_run(*HOSTILE)))
    assert root.get("lang") == "en"
    (image,) = root.iter(f"{SVG}svg")
    ids = {element.get("id") for element in image.iter()}
    assert image.get("role") == "img" and set((image.get("aria-labelledby") or "").split()) <= ids
    for table in root.iter(f"{HTML}table"):
        assert table.find(f"{HTML}caption") is not None
        assert all(head.get("scope") for head in table.iter(f"{HTML}th"))
    drawn = [bar for bar in image.iter(f"{SVG}rect") if bar.get("rx")]
    assert drawn and all(bar.find(f"{SVG}title") is not None for bar in drawn)


def test_the_timeline_shows_nodes_waits_calls_and_cooldowns() -> None:
    image = ET.fromstring(render_svg(failed_run("N1_design")))
    tooltips = [title.text or "" for title in image.iter(f"{SVG}title")]
    assert "N1_design: 0.8s, from 1.1s" in tooltips
    assert "waiting for a key (draft-1): 0.3s, from 1.2s" in tooltips
    assert any(text.startswith("call (LLD-1): 0.4s") for text in tooltips)
    assert any(text.startswith("rate limited (N1_design): ") for text in tooltips)


@pytest.mark.parametrize("dark", [False, True])
def test_the_timeline_has_enough_contrast(dark: bool) -> None:
    style = ET.fromstring(render_svg(approved_run())).find(f".//{SVG}style")
    assert style is not None and style.text
    light, _, night = style.text.partition("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", night if dark else light))
    assert all(_contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "quiet", "refused"))
    graphic = [name for name in colours if re.fullmatch(r"c\d|call|rest|hatch", name)]
    assert len(graphic) == 11
    assert all(_contrast(colours[name], colours["paper"]) >= 3 for name in graphic)


def _contrast(first: str, second: str) -> float:
    """The contrast ratio by the formula of WCAG."""
    luminances = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (luminances[0] + 0.05) / (luminances[1] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_very_long_backlog_is_drawn_partly_and_listed_completely() -> None:
    record = failed_run(*(f"title {number}" for number in range(MAX_ITEMS + 7)))
    root = ET.fromstring(render_html(record))
    text = "".join(root.itertext())
    assert f"Only the first {MAX_ITEMS} items are drawn." in text
    assert f"title {MAX_ITEMS + 6}" in text


def test_markdown_escapes_tags_links_and_table_cells() -> None:
    text = render_markdown(failed_run(*HOSTILE))
    outside, inside = [], False
    for line in text.splitlines():
        inside = inside != line.startswith("```")
        if not inside and not line.startswith("```"):
            outside.append(line)
    prose = "\n".join(line for line in outside if not line.startswith("| Command |"))
    assert "| Command | `<script>alert(1)</script>` |" in outside, "code is not interpreted"
    assert (
        "<" not in prose and "](" not in prose.replace("\\](", "") and "@" not in prose and "://" not in prose
    )
    rows = [line for line in outside if line.startswith("| LLD-")]
    assert len(rows) == len(HOSTILE)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}
    assert text.count("```") == 2


def test_junit_is_valid_xml_and_maps_every_outcome() -> None:
    root = ET.fromstring(render_junit(failed_run(*HOSTILE)))
    suite = root.find("testsuite")
    assert suite is not None and suite.get("failures") == str(len(HOSTILE)) == suite.get("tests")
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert messages[:5] == list(HOSTILE[:5])
    assert [case.tag for case in ET.fromstring(render_junit(approved_run()))[0].iter("failure")] == []
    revise = ET.fromstring(render_junit(approved_run(verdict=Verdict.NEEDS_REVISION)))[0]
    assert revise.get("skipped") == "1" and revise.get("failures") == "0"
    skipped = revise.find("testcase/skipped")
    assert skipped is not None and skipped.get("message") == "needs revision"


def test_csv_has_one_row_per_item_and_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(failed_run(*HOSTILE)))))
    assert [row["item"] for row in rows] == [f"LLD-{number}" for number in range(1, len(HOSTILE) + 1)]
    assert rows[4]["title"] == '\'=HYPERLINK("http://evil.example")'
    assert rows[0]["title"] == HOSTILE[0] and rows[0]["waited_seconds"] == "0.300"
    assert len(rows[6]["title"]) == MAX_TEXT + 1


@pytest.mark.parametrize("write", [render_html, render_markdown, render_junit, render_csv])
def test_an_empty_run_has_a_report(write: object) -> None:
    assert callable(write)
    assert write(RunRecord("20261115T221503Z"))


def test_the_report_of_a_killed_run_says_how_to_resume_it() -> None:
    record = RunRecord("r", alive=False, unread=1, torn=True)
    record.handle(
        events.RunStarted("r", "lld", "/p", ("LLD-1",), 1, ("key-1",), "lld-workflow --all --fresh"), 1.0
    )
    record.handle(events.ItemStarted("LLD-1", 1, 1), 2.0)
    text = render_markdown(record)
    assert "Skipped 1 unreadable line of the journal (the last one is incomplete)." in text
    assert "The run was killed, or its machine went down" in text
    assert "Resume with: `lld-workflow --all`\n" in text
    assert "<code>lld-workflow --all</code></p>" in render_html(record)
    suite = ET.fromstring(render_junit(record))[0]
    assert suite.get("errors") == "1"


def test_two_runs_are_compared_side_by_side() -> None:
    lines = list(comparison(approved_run(2.0), approved_run(3.0, Verdict.NEEDS_REVISION)))
    found = {line.rpartition("  ")[0].split("  ")[0].strip(): line.split() for line in lines}
    assert found["time"][1:] == ["2.0s", "3.0s", "+50", "%"]
    assert found["approved"][1:] == ["1", "0", "-100", "%"]
    assert found["calls"][1:] == ["2", "2", "="]
    assert lines[-1] == "  LLD-1: approved, then needs revision"


def test_many_items_with_different_results_are_grouped() -> None:
    names = tuple(f"LLD-{number}" for number in range(1, 23))
    first, second = RunRecord("a"), RunRecord("b")
    for record in (first, second):
        record.handle(events.RunStarted("r", "lld", "/p", names, 1, (), "lld-workflow --all"), 1.0)
    for name in names[:21]:
        approved = Outcome(Ending.FINISHED, Verdict.APPROVED)
        first.handle(events.ItemEnded(name, approved, 1.0, Usage(), 1), 2.0)
    lines = list(comparison(first, second))
    place = lines.index("Items with different results:")
    assert lines[place + 1 :] == [
        "  21 items: approved, then not started (LLD-1, LLD-2, LLD-3, LLD-4, LLD-5 ... LLD-21)"
    ]


@pytest.mark.parametrize("seconds", [0.1, 0.9, 7.0, 61.0, 3599.0, 86400.0, 30 * 86400.0])
def test_an_axis_has_a_few_round_ticks(seconds: float) -> None:
    ticks = Axis(seconds, 0, 100).ticks()
    assert 2 <= len(ticks) <= MAX_TICKS + 1
    assert ticks[0] == 0 and ticks[-1] <= seconds + 1e-9


def test_tick_labels_are_short() -> None:
    assert [tick_label(at) for at in (0, 0.5, 30, 90, 7200)] == ["0", "0.5s", "30s", "1:30", "2:00:00"]


def test_a_command_in_markdown_can_be_copied_as_it_is() -> None:
    command = "agentos exec --items '*.md' -- sh -c 'wc -w < {item} | tee `date`_#1.txt'"
    record = RunRecord("r")
    record.handle(events.RunStarted("r", "exec", "/p", ("1",), 1, (), command), 1.0)
    text = render_markdown(record)
    assert f"Resume with: `` {command} ``\n" in text
    escaped = command.replace("|", r"\|")
    assert f"| Command | `` {escaped} `` |" in text
