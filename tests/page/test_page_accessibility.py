"""The page without a mouse, and what axe-core says about every view."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.scenarios.harness import RunHarness

from .browser import Tab, open_tab, require, violations
from .setup_browser import AXE, AXE_HINT

pytestmark = pytest.mark.slow


def tab_to(page: Page, description: str, limit: int = 60) -> None:
    """Press Tab until the focus is on an element whose name or text contains the description."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "() => { const e = document.activeElement; if (e === document.body) return ''; return (e.getAttribute('aria-label') ?? '') + ' ' + "
            "(e.labels?.[0]?.textContent ?? '') + ' ' + (e.textContent ?? '') + ' ' + (e.id ?? ''); }"
        )
        if description in name:
            outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"{description} has the focus and does not show it"
            return
    raise AssertionError(f"Tab never reached {description!r}")


def test_every_control_is_reached_and_used_by_keyboard_alone(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    server = harness.server()
    with open_tab(browser, harness) as tab:
        with server.frozen():  # until it was paused, resumed and changed
            run = harness.start("--all", "--review", "draft")
            control_by_keyboard(tab)
        run.wait()
        decide_by_keyboard(tab)
        tab.check()


def control_by_keyboard(tab: Tab) -> None:
    """From the list of runs to an item, over every control on the way."""
    page = tab.page
    page.wait_for_selector("a.run-link")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    for name in ("Runs", "Decisions", "Notify me", "Keyboard shortcuts", "Another browser", "Log out"):
        tab_to(page, name)
    for name in ("run-search", "run-state", "to compare", "lld in project"):
        tab_to(page, name)
    page.keyboard.press("Enter")
    page.wait_for_selector("#tab-items")
    expect(page.locator("[data-test=pause]")).to_be_visible()
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.locator("[data-test=run-state]")).to_have_text("paused")
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    expect(page.locator("[data-test=run-state]")).to_have_text("running")
    tab_to(page, "One worker more")
    page.keyboard.press("Enter")
    expect(page.locator(".stepper output")).to_have_text("2 workers")
    page.keyboard.press("u")
    expect(page.locator(".stepper output")).to_have_text("1 worker")
    tab_to(page, "Items")
    for panel in ("timeline", "keys", "log", "events", "items"):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f"#tab-{panel}")).to_have_attribute("aria-selected", "true")
    for name in ("item-search", "For you", "Failed", "LLD-1"):
        tab_to(page, name)
    page.keyboard.press("Enter")
    page.wait_for_selector("#tab-documents")


def decide_by_keyboard(tab: Tab) -> None:
    """Send one back, approve an edited one, reject the last: with the single-letter shortcuts."""
    page = tab.page
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.locator(".decision h2")).to_contain_text("LLD-1")
    page.keyboard.press("s")
    page.keyboard.type("name the limit")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".decision h2")).to_contain_text("LLD-2")
    page.keyboard.press("e")
    expect(page.locator("#draft-text")).to_be_focused()
    page.keyboard.type("Mine. ")
    tab_to(page, "Log out")
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    expect(page.locator(".decision h2")).to_contain_text("LLD-3")
    page.keyboard.press("r")
    expect(page.locator("dialog textarea")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("r")
    page.keyboard.type("not wanted")
    tab_to(page, "Reject")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No item is waiting for a decision")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation_in_any_view(
    browser: Browser, harness: RunHarness, scheme: str
) -> None:
    require(AXE.exists(), AXE_HINT)
    harness.issue(1, "weak")
    harness.issue(2)
    harness.server()
    assert harness.run("1").code == 0
    assert harness.run("2", "--review", "draft").code == 0
    first, second = (run.name for run in harness.runs())
    with open_tab(browser, harness, color_scheme=scheme) as tab:
        found = {"runs": violations(tab.page)}
        for view in (
            f"runs/{first}",
            f"runs/{second}",
            f"runs/{first}/items/LLD-1",
            "decisions",
            f"compare/{first}/{second}",
        ):
            tab.go(view)
            tab.page.wait_for_selector("main .card")
            found[view] = violations(tab.page)
            for panel in tab.page.locator("[role=tab]").all()[1:]:
                panel.click()
                tab.page.wait_for_timeout(300)
                found[f"{view} {panel.text_content()}"] = violations(tab.page)
        tab.go("decisions")
        tab.page.locator("[data-test=edit]").click()
        found["editor"] = violations(tab.page)
        tab.page.locator("[data-test=reject]").click()
        found["dialog"] = violations(tab.page)
        tab.page.set_viewport_size({"width": 390, "height": 844})
        tab.page.keyboard.press("Escape")
        for view in ("", f"runs/{first}"):
            tab.go(view)
            tab.page.wait_for_selector("main .card")
            found[f"phone {view}"] = violations(tab.page)
        assert {view: problems for view, problems in found.items() if problems} == {}
