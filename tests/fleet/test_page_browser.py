"""A fleet in a real Chromium: the same views, from start to end, with a decision, a stop and a Postgres that goes away."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fleet.harness import Fleet
from tests.fleet.served_page import served_fleet, slow_models
from tests.fleet.servers import running_servers
from tests.page.setup_browser import AXE, AXE_HINT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("playwright")

from playwright.sync_api import expect

from tests.page.browser import launched, open_served, require, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(
    scope="module"
)  # its event loop must not outlive the module: other tests have loops of their own
def browser() -> "Iterator[Browser]":
    with launched() as opened:
        yield opened


def test_a_submission_is_watched_decided_and_stopped_in_the_browser(browser: "Browser", fleet: Fleet) -> None:
    require(AXE.exists(), AXE_HINT)
    fleet.issues(1, 2, 3)
    with slow_models(fleet, "1.5,1.6"), served_fleet(fleet) as served, open_served(browser, served) as tab:
        page = tab.page
        expect(page.locator(".empty")).to_contain_text("lld-workflow --all --fleet")
        submitted = fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft", "--detach")
        assert submitted.returncode == 0
        expect(page.locator(".run-card .pill")).to_have_text("running")
        page.locator("a.run-link").click()
        expect(page.locator("h1")).to_have_text(f"lld in {fleet.name}")
        worker = fleet.worker(parallel=2)
        expect(page.locator("tr", has_text="LLD-1").locator(".wide-cell").first).to_contain_text(
            "N1_design", timeout=60_000
        )
        expect(page.locator("tr", has_text="LLD-1").locator(".pill")).to_have_text(
            "waiting for you", timeout=60_000
        )
        # What a fleet does not have stays where it is and says why, by keyboard too.
        pause = page.get_by_role("button", name="Pause")
        expect(pause).to_have_attribute("aria-disabled", "true")
        pause.press("Enter")
        expect(page.locator(".toast").last).to_contain_text("A submission cannot be paused")
        page.get_by_role("link", name=re.compile("Decide")).click()
        expect(page.locator(".decision h2")).to_contain_text("LLD-1")
        page.locator("[data-test=edit]").click()
        text = page.locator("#draft-text")
        text.fill(f"{text.input_value()}\nEdited in the browser.\n")
        page.locator("[data-test=approve]").click()
        expect(page.locator(".toast").last).to_contain_text("it goes to review. Its run continues it.")
        tab.go("runs/S1/items/LLD-1")
        expect(page.locator(".document-list")).to_contain_text("Edited draft", timeout=30_000)
        page.locator(".document-list button", has_text="Edited draft").click()
        expect(page.locator(".document").first).to_contain_text("Edited in the browser.")
        expect(page.locator(".document-list")).to_contain_text("Verdict 1", timeout=60_000)
        page.locator("#tab-calls").click()
        expect(page.locator("tbody tr").first).to_contain_text("answered")
        page.locator("#tab-log").click()
        expect(page.locator(".lines")).to_contain_text("N3_review")
        tab.go("machines")
        expect(page.locator("tbody tr", has_text=f":{worker.pid}")).to_contain_text("LLD-")
        expect(page.locator(".key-card").first).to_contain_text("gemini")
        assert violations(page) == []
        tab.go("runs/S1/keys")
        expect(page.locator(".key-card").first).to_contain_text("gemini")
        assert violations(page) == []
        page.locator("#tab-items").click()
        page.locator("[data-test=stop]").click()
        page.locator("dialog button[type=submit]").click()
        expect(page.locator("[data-test=run-state]")).to_have_text("ended, exit 75", timeout=60_000)
        expect(page.locator(".notices")).to_contain_text("lld-workflow --all --fleet")
        assert page.title().startswith("ended ")
        assert violations(page) == []
        tab.check()


def test_postgres_away_is_one_clear_line_that_goes_by_itself(browser: "Browser", tmp_path: Path) -> None:
    with (
        running_servers() as (postgres, temporal),
        Fleet(tmp_path, postgres, temporal, postgres.admin_url) as fleet,
    ):
        assert fleet.run("agentos", "fleet", "init").returncode == 0
        fleet.issues(1)
        assert fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft", "--detach").returncode == 0
        with (
            served_fleet(fleet) as served,
            open_served(browser, served) as tab,
            open_served(browser, served) as other,
        ):
            tab.go("runs/S1")
            expect(tab.page.locator(".item-link")).to_have_text("LLD-1")
            expect(other.page.locator(".run-card .pill")).to_have_text("running")
            postgres.stop()
            for page, line in ((tab.page, ".notices .notice"), (other.page, ".notice")):
                expect(page.locator(line)).to_have_count(1)
                expect(page.locator(line)).to_contain_text("Postgres cannot be reached")
            other.go("decisions")
            expect(other.page.locator("h1")).to_have_text("That did not work")
            expect(other.page.locator(".card")).to_contain_text("Postgres cannot be reached")
            postgres.start()
            expect(tab.page.locator(".notices .notice")).to_have_count(0)
            expect(other.page.locator("h1")).to_have_text("Decisions")
            fleet.worker()
            expect(other.page.locator(".decision h2")).to_contain_text("LLD-1", timeout=60_000)
            expect(tab.page.locator(".items .pill")).to_have_text("waiting for you")
            tab.check()
            other.check()
