"""Hostile titles, drafts, verdicts, log lines and key names are shown as text: nothing runs, nothing loads."""

import pytest
from playwright.sync_api import Browser, expect

from agentos.core.protocol import events
from agentos.core.protocol.results import Ending, Outcome, Usage
from agentos.core.ratelimit.refusals import Refusal, RefusalKind
from tests.scenarios.harness import RunHarness

from .browser import open_tab
from .recorded import RecordedRun, recorded_run
from .xss_vectors import MARKUP, VECTORS

pytestmark = pytest.mark.slow
VISIBLE = "<img src=x onerror=window.pwned=1>"


def hostile_events(run: RecordedRun, items: list[str]) -> None:
    """One vector in every field that the page shows."""
    for number, item in enumerate(items):
        text = MARKUP[number % len(MARKUP)]
        run.write(
            events.ItemStarted(item, 1, 1),
            events.NodeStarted(item, text, 1),
            events.LeaseRequested(item, text, (text,)),
            events.LeaseGranted(item, text, f"lease-{item}", 2.0),
            events.LeaseReleased(
                item, f"lease-{item}", 1.0, Usage(1, 1, 1), Refusal(RefusalKind.RATE_LIMITED, text), text
            ),
            events.KeyLimited(text, 3600.0, text),
            events.BreakerOpened(text, text, 3600.0),
            events.ItemRetried(item, text, 2, 3, 1.0),
            events.ItemStarted(item, 1, 2),
            events.ItemEnded(
                item,
                Outcome(Ending.FAILED, error=text, details=(text,), result=text if number else None),
                1.0,
                Usage(),
                2,
                text,
            ),
        )


def test_nothing_of_a_hostile_run_becomes_markup(browser: Browser, harness: RunHarness) -> None:
    items = [f"LLD-{number}" for number in range(1, len(MARKUP) + 1)]
    lineage = harness.project / "docs/lineage/done/1-lld"
    lineage.mkdir(parents=True)
    for number, kind in enumerate(("issue", "draft", "verdict", "draft", "verdict"), 1):
        (lineage / f"{number:03}-{kind}.md").write_text("\n\n".join(VECTORS) + f"\n\nround {number}\n")
    with recorded_run(harness, tuple(items), MARKUP, MARKUP) as run:
        hostile_events(run, items)
        (harness.home / "logs/parallel" / run.id / "LLD-1.log").write_text("\n".join(MARKUP) + "\n")
        with open_tab(browser, harness) as tab:
            tab.page.locator("a.run-link").click()
            expect(tab.page.get_by_text(VISIBLE).first).to_be_attached()
            for panel in ("timeline", "keys", "log", "events", "items"):
                tab.page.locator(f"#tab-{panel}").click()
                tab.page.wait_for_timeout(300)
            hostile_events(run, items)  # again, as they happen
            tab.go(f"runs/{run.id}/items/LLD-1")
            expect(tab.page.locator(".document")).to_contain_text("<script>window.pwned=1</script>")
            for link in tab.page.locator(".document a[href]").all():
                assert (link.get_attribute("href") or "").startswith(("http://example.org", "mailto:"))
            assert (
                tab.page.locator(".document img, .document script, .document iframe, .document style").count()
                == 0
            )
            for panel in ("changes", "calls", "log"):
                tab.page.locator(f"#tab-{panel}").click()
                tab.page.wait_for_timeout(300)
            expect(tab.page.locator(".lines")).to_contain_text("<svg onload=window.pwned=1>")
            tab.check()


def test_a_parked_hostile_draft_is_text_in_reader_editor_and_preview(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issue(1)
    issue = harness.project / "issues/001-thing.md"
    issue.write_text(issue.read_text().replace("# Thing", f"# {VISIBLE} Thing"))
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        tab.go("decisions")
        expect(tab.page.locator(".decision h2")).to_contain_text(VISIBLE)
        tab.page.locator("[data-test=edit]").click()
        tab.page.locator("#draft-text").fill("\n\n".join(VECTORS))
        expect(tab.page.locator(".document").last).to_contain_text("<script>window.pwned=1</script>")
        tab.check()
