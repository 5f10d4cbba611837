"""The page in a real Chromium, against real runs of the offline server."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from agentos.core.protocol import events
from tests.scenarios.harness import KEYS, RunHarness, wait_until

from .browser import open_tab
from .recorded import recorded_run

pytestmark = pytest.mark.slow
STATE = "[data-test=run-state]"


def test_a_run_is_watched_from_start_to_end(browser: Browser, harness: RunHarness) -> None:
    harness.issues(*range(1, 7))
    server = harness.server("--latency", "1,1.2")
    with open_tab(browser, harness) as tab:
        progress = tab.page.locator("[data-test=progress]")
        with server.frozen():
            run = harness.start("--all", "--parallel", "2")
            expect(tab.page.locator(".run-card .pill")).to_have_text("running")
            tab.page.locator("a.run-link").click()
            expect(tab.page.locator(STATE)).to_have_text("running")
            expect(tab.page.locator("table.items tbody tr:not(.spacer)")).to_have_count(6)
            expect(tab.page.locator("td.state-cell", has_text="running")).to_have_count(2)
            expect(progress).to_have_text("0 of 6")
        wait_until(lambda: harness.events("item_ended"))
        with server.frozen():
            expect(progress).not_to_have_text("0 of 6")
            assert run.process.poll() is None, "it was not watched while it ran"
        expect(tab.page.locator(STATE)).to_have_text("ended")
        expect(progress).to_have_text("6 of 6")
        expect(tab.page.locator("td.state-cell", has_text="approved")).to_have_count(6)
        expect(tab.page).to_have_title("ended 6/6 lld - agentos")
        assert run.wait().code == 0
        for panel in ("timeline", "keys", "log", "events"):
            tab.page.locator(f"#tab-{panel}").click()
        tab.check()


def test_a_parked_draft_is_edited_and_approved_and_the_run_goes_on(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issues(*range(1, 7))
    server = harness.server("--latency", "1,1.2")
    with open_tab(browser, harness) as tab:
        run = harness.start("--all", "--review", "draft")
        wait_until(lambda: [event for event in harness.events("item_ended") if event["item"] == "LLD-1"])
        with server.frozen():  # the other items keep the run alive meanwhile
            tab.go("decisions/LLD-1")
            tab.page.locator("[data-test=edit]").click()
            text = tab.page.locator("#draft-text")
            text.press("Control+End")
            text.type("\n\n## Added in the page\n\nA paragraph of **mine**.\n")
            expect(tab.page.locator(".document strong", has_text="mine")).to_be_visible()
            tab.page.locator("[data-test=approve]").click()
            expect(tab.page.locator(".toast")).to_contain_text("it goes to review. Its run continues it.")
        assert run.wait().code == 0
        assert "## Added in the page" in harness.document(1).read_text()
        tab.check()


def test_a_run_is_paused_and_resumed_with_undo(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    server = harness.server()
    with open_tab(browser, harness) as tab, server.frozen():
        run = harness.start("--all")
        tab.page.locator("a.run-link").click()
        expect(tab.page.locator(STATE)).to_have_text("running")
        tab.page.locator("[data-test=pause]").click()
        expect(tab.page.locator(STATE)).to_have_text("paused")
        assert harness.events("run_paused")
        tab.page.locator("[data-test=resume]").click()
        expect(tab.page.locator(STATE)).to_have_text("running")
        tab.page.locator("button[aria-label='One worker more']").click()
        expect(tab.page.locator(".stepper output")).to_have_text("2 workers")
        tab.page.locator(".toast", has_text="2 workers").get_by_text("Undo").click()
        expect(tab.page.locator(".stepper output")).to_have_text("1 worker")
        tab.page.locator("[data-test=stop]").click()
        tab.page.get_by_role("button", name="Stop the run").click()
        assert run.wait().code == 143
        expect(tab.page.locator(STATE)).to_have_text("ended, exit 143")
        expect(tab.page.locator(".notice")).to_contain_text("Resume with: (cd ")
        tab.check()


def test_after_kill_9_the_page_says_so_and_shows_the_command(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2)
    server = harness.server()
    with open_tab(browser, harness) as tab, server.frozen():
        run = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        tab.page.locator("a.run-link").click()
        expect(tab.page.locator(STATE)).to_have_text("running")
        run.process.kill()
        expect(tab.page.locator(STATE)).to_have_text("killed")
        expect(tab.page.locator(".notice .command")).to_contain_text("lld-workflow --all")
        expect(tab.page.locator("td.state-cell", has_text="killed")).to_have_count(1)
        tab.check()


def test_the_second_of_two_people_is_told(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        tab.go("decisions/LLD-1")
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-1")
        assert harness.run("review", "LLD-1", "--approve", program="agentos").code == 0
        tab.page.locator("[data-test=reject]").click()
        tab.page.locator("dialog textarea").fill("no")
        tab.page.get_by_role("button", name="Reject").last.click()
        expect(tab.page.locator(".toast")).to_contain_text("already approved")
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-2")
        tab.check()


def test_an_edit_that_came_too_late_is_kept_for_its_author(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        tab.go("decisions/LLD-1")
        tab.page.locator("[data-test=edit]").click()
        tab.page.locator("#draft-text").fill("# Mine\n")
        assert harness.run("review", "LLD-1", "--approve", program="agentos").code == 0
        tab.page.locator("[data-test=approve]").click()
        expect(tab.page.locator(".toast")).to_contain_text("already approved")
        expect(tab.page.locator(".toast")).to_contain_text("Your text is still here")
        expect(tab.page.locator("#draft-text")).to_have_value("# Mine\n")
        tab.page.locator(".queue-entry", has_text="LLD-2").click()
        tab.page.get_by_role("button", name="Discard").click()
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-2")
        tab.check()


def test_an_edit_survives_a_look_at_another_item_and_view(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        tab.go("decisions/LLD-1")
        tab.page.locator("[data-test=edit]").click()
        text = tab.page.locator("#draft-text")
        text.fill("# Mine\n")
        tab.page.locator(".queue-entry", has_text="LLD-2").click()
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-2")
        expect(text).to_have_count(0)
        tab.page.locator("#nav a", has_text="Runs").click()
        tab.page.wait_for_selector("a.run-link")
        tab.go("decisions/LLD-1")
        expect(text).to_have_value("# Mine\n")
        expect(tab.page.locator(".document h3", has_text="Mine")).to_be_visible()
        tab.page.locator("[data-test=edit]").click()
        tab.page.get_by_role("button", name="Discard").click()
        tab.page.locator("[data-test=edit]").click()
        expect(text).not_to_have_value("# Mine\n")
        tab.check()


def test_a_key_pressed_twice_decides_once_and_the_command_that_resumes_stays_in_sight(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issues(1, 2, 3)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        tab.go("decisions/LLD-1")
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-1")
        press = "repeat => document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true, repeat }))"
        for _ in range(3):
            tab.page.evaluate(press, False)
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-2")
        for _ in range(3):  # nor a key that is held down
            tab.page.evaluate(press, True)
        expect(tab.page.locator(".toast")).to_have_text(["LLD-1: it goes to review.×"])
        expect(tab.page.locator(".notice")).to_contain_text("Decided: LLD-1. Resume with: (cd ")
        tab.page.reload()
        expect(tab.page.locator(".notice")).to_contain_text("Decided: LLD-1. Resume with: (cd ")
        expect(tab.page.locator(".decision h2")).to_contain_text("LLD-2")
        assert harness.run("1").code == 0
        expect(tab.page.locator(".notice")).to_have_count(0)
        tab.check()


def wait_for_requests(page: Page, held: list[Route]) -> None:
    """Wait until a request is held; playwright calls its handlers only while it waits itself."""
    while not held:
        page.wait_for_timeout(10)


def test_a_decision_never_hits_an_item_whose_draft_arrived_too_late(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    with open_tab(browser, harness) as tab:
        page, held = tab.page, list[Route]()
        page.route("**/api/reviews/LLD-1?*", lambda route: held.append(route))
        tab.go("decisions", wait=False)
        page.locator(".queue-entry", has_text="LLD-2").click()
        expect(page.locator(".decision h2")).to_contain_text("LLD-2")
        with page.expect_request_finished(lambda request: "/api/reviews/LLD-1" in request.url):
            [late] = held
            late.continue_()
        expect(page.locator("#main:not([aria-busy])")).to_be_attached()
        expect(page.locator(".decision h2")).to_contain_text("LLD-2")
        page.keyboard.press("a")
        expect(page.locator(".toast")).to_contain_text("LLD-2: it goes to review")
        tab.check()


def test_a_view_that_was_left_before_its_data_arrived_does_not_come_back(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issue(1)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    run = f"runs/{harness.runs()[0].name}"
    with open_tab(browser, harness) as tab:
        page, held = tab.page, list[Route]()
        page.route("**/api/reviews", lambda route: held.append(route))
        tab.go("decisions", wait=False)
        wait_for_requests(page, held)
        tab.go(run, wait=False)
        with page.expect_request_finished(lambda request: "/api/reviews/LLD-1" in request.url):
            for route in held:
                route.continue_()
            page.unroute("**/api/reviews")
        expect(page.locator("#main:not([aria-busy])")).to_be_attached()
        expect(page.locator("h1")).to_have_text("lld in project")
        assert page.url.endswith(f"/#/{run}")
        expect(page).to_have_title("ended 1/1 lld - agentos")
        tab.check()


def test_a_run_that_has_ended_knows_what_was_decided_since(browser: Browser, harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--review", "draft").code == 0
    name = harness.runs()[0].name
    with open_tab(browser, harness) as tab:
        tab.go(f"runs/{name}")
        notices = tab.page.locator(".notice")
        expect(notices.first).to_contain_text("LLD-1, LLD-2 are waiting for a decision")
        assert harness.run("review", "LLD-1", "--approve", program="agentos").code == 0
        expect(notices.first).to_contain_text("LLD-2 is waiting for a decision")
        assert harness.run("review", "LLD-2", "--approve", program="agentos").code == 0
        expect(notices).to_have_count(1)
        expect(notices).to_contain_text("Then resume with: ")
        assert harness.run("--all").code == 0
        expect(notices).to_have_count(0)
        tab.go("decisions/LLD-1")
        expect(tab.page.locator(".toast")).to_contain_text("LLD-1 is no longer waiting for a decision.")
        tab.check()


def test_the_log_has_each_line_once_and_follows_until_its_reader_scrolls_up(
    browser: Browser, harness: RunHarness
) -> None:
    def notes(numbers: range) -> list[events.Event]:
        return [events.NodeStarted("LLD-1", f"node-{number}", 1) for number in numbers]

    with recorded_run(harness, ("LLD-1", "LLD-2")) as run, open_tab(browser, harness) as tab:
        page, held = tab.page, list[Route]()
        run.write(*notes(range(300)))
        tab.go(f"runs/{run.id}")
        page.route("**/log?*", lambda route: held.append(route))
        page.locator("#tab-log").click()
        wait_for_requests(page, held)
        run.write(*notes(range(300, 310)))  # the stream brings these before the answer does
        run.finish_item("LLD-2")
        expect(page.locator("[data-test=progress]")).to_have_text("1 of 2")
        held[0].continue_()
        page.unroute("**/log?*")
        lines = page.locator(".lines .line", has_text="node-")
        follow = page.get_by_label("Follow")
        expect(lines).to_have_count(310)
        box = page.locator(".lines")
        box.evaluate("box => { box.scrollTop = 0; }")
        expect(follow).not_to_be_checked()
        run.write(*notes(range(310, 320)))
        expect(lines).to_have_count(320)
        assert box.evaluate("box => box.scrollTop") == 0
        follow.check()
        assert box.evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight") < 2
        tab.check()


# What the page does every ten seconds in the background, it does at once.
SHORT_WAIT = """
const wait = window.setInterval;
window.setInterval = (act, ms) => wait(act, ms === 10000 ? 50 : ms);
Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? false });
window.hide = (isHidden) => { window.isHidden = isHidden; document.dispatchEvent(new Event("visibilitychange")); };
"""


def test_a_tab_that_comes_back_from_the_background_has_missed_nothing(
    browser: Browser, harness: RunHarness
) -> None:
    with (
        recorded_run(harness, ("LLD-1", "LLD-2")) as run,
        open_tab(browser, harness, script=SHORT_WAIT) as tab,
    ):
        tab.go(f"runs/{run.id}/log")
        lines = tab.page.locator(".lines .line")
        expect(lines).to_have_count(1)
        tab.page.evaluate("window.hide(true)")
        run.finish_item("LLD-1")
        expect(tab.page.locator("[data-test=progress]")).to_have_text("1 of 2")
        assert tab.page.locator(".lines .line", has_text="N4_finalize").count() == 0
        tab.page.evaluate("window.hide(false)")
        expect(tab.page.locator(".lines .line", has_text="N4_finalize").first).to_be_attached()
        tab.check()


@pytest.mark.parametrize("width", [320, 390, 768, 1280, 2560])
def test_no_view_is_wider_than_its_screen(browser: Browser, harness: RunHarness, width: int) -> None:
    harness.issues(1, 2)
    refusal = {"kind": "429-minute", "nth": 1, "retry_delay": 1}
    harness.server("--rpm", "600", fault=refusal)
    assert harness.run("1").code == 0
    assert harness.run("2", "--review", "draft").code == 0
    first, second = sorted(run.name for run in harness.runs())
    views = ["", "decisions", f"compare/{first}/{second}", f"runs/{first}/items/LLD-1"]
    views += [f"runs/{first}{panel}" for panel in ("", "/timeline", "/keys", "/log", "/events")]
    with open_tab(browser, harness, viewport={"width": width, "height": 800}) as tab:
        wide = {}
        for view in views:
            tab.go(view)
            tab.page.wait_for_selector("main .card")
            tab.page.wait_for_timeout(300)
            wide[view] = tab.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        assert wide == dict.fromkeys(views, 0)
        tab.check()


def test_the_timeline_follows_the_width_of_its_screen(browser: Browser, harness: RunHarness) -> None:
    harness.issue(1)
    harness.server()
    assert harness.run("--all").code == 0
    with open_tab(browser, harness, viewport={"width": 1280, "height": 800}) as tab:
        tab.go(f"runs/{harness.runs()[0].name}/timeline")
        picture = tab.page.locator(".timeline-canvas svg")
        picture.wait_for()
        tab.page.set_viewport_size({"width": 390, "height": 800})
        wait_until(lambda: picture.evaluate("svg => svg.clientWidth") < 390)
        tab.check()


def test_the_timeline_tells_a_pause_from_keys_that_no_call_can_use(
    browser: Browser, harness: RunHarness
) -> None:
    with recorded_run(harness, ("LLD-1",)) as run, open_tab(browser, harness) as tab:
        run.write(
            events.BreakerOpened("gemini", "503", 10.0), events.BreakerClosed("gemini", 3.0), seconds=1.0
        )
        run.write(events.RunPaused(), events.RunResumed(1.0), seconds=1.0)
        run.finish_item("LLD-1")
        tab.go(f"runs/{run.id}/timeline")
        items, keys = (
            tab.page.locator(".timeline-canvas svg"),
            tab.page.locator("svg[aria-label='Keys over time']"),
        )
        expect(items.locator(".pause title")).to_have_text("run paused: 1.0s")
        expect(keys.locator(".limited title")).to_contain_text("provider failing")
        expect(items.locator(".limited")).to_have_count(0)
        tab.check()


def test_a_read_only_page_offers_no_control(browser: Browser, harness: RunHarness) -> None:
    harness.issue(1)
    server = harness.server()
    with open_tab(browser, harness, "--read-only") as tab, server.frozen():
        harness.start("--all")
        tab.page.locator("a.run-link").click()
        expect(tab.page.locator(STATE)).to_have_text("running")
        expect(tab.page.locator("[data-test=pause]")).to_be_hidden()
        expect(tab.page.locator("[data-test=stop]")).to_be_hidden()
        tab.check()


def test_a_key_is_disabled_with_undo_and_cooled_down(browser: Browser, harness: RunHarness) -> None:
    harness.issue(1)
    server = harness.server(keys=KEYS[:1])
    harness.keys = ()
    table = (
        f'[[credential]]\nname = "work"\nprovider = "gemini"\nkey = "{KEYS[0]}"\nbase_url = "{server.url}"\n'
    )
    harness.home.mkdir(mode=0o700, exist_ok=True)
    (harness.home / "credentials.toml").write_text(table)
    (harness.home / "credentials.toml").chmod(0o600)
    assert harness.run("--all").code == 0
    with open_tab(browser, harness) as tab:
        tab.page.locator("a.run-link").click()
        tab.page.locator("#tab-keys").click()
        key = tab.page.locator(".key-card", has_text="work")
        expect(key.locator(".pill")).to_have_text("available")
        key.get_by_role("button", name="Disable").click()
        expect(key.locator(".pill")).to_have_text("disabled")
        tab.page.locator(".toast", has_text="work: disabled.").get_by_text("Undo").click()
        expect(key.locator(".pill")).to_have_text("available")
        key.get_by_role("button", name="Cool down 10 min").click()
        tab.page.get_by_role("button", name="Cool it down").click()
        expect(tab.page.locator(".toast", has_text="work cools down for 10 minutes.")).to_be_visible()
        expect(key.locator(".pill")).to_contain_text("rate limited")
        tab.check()
    listed = harness.run("keys", program="agentos").out
    assert "rate limited" in listed, listed


# What a desktop would show is kept in a list, and the tab counts as hidden.
RECORDED_NOTIFICATIONS = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(title, options) { window.shown.push(`${title}: ${options.body}`); }
};
Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? true });
"""


def test_notifications_tell_of_a_decision_and_of_the_end_of_a_run(
    browser: Browser, harness: RunHarness
) -> None:
    harness.issues(1, 2)
    server = harness.server()
    with open_tab(browser, harness, script=RECORDED_NOTIFICATIONS) as tab:
        button = tab.page.get_by_role("button", name="Notify me")
        expect(button).to_have_attribute("aria-pressed", "false")
        button.click()
        expect(tab.page.get_by_role("button", name="Notifications on")).to_have_attribute(
            "aria-pressed", "true"
        )
        with server.frozen():
            run = harness.start("--all", "--review", "draft")
            expect(tab.page.locator(".run-card .pill")).to_have_text("running")
        assert run.wait().code == 0

        def is_shown(beginning: str) -> bool:
            return any(text.startswith(beginning) for text in tab.page.evaluate("window.shown"))

        wait_until(lambda: is_shown("A decision is needed: LLD-"))
        wait_until(lambda: is_shown("A run has ended: lld: "))
        # Nobody is told what they can see, nor after they have switched it off.
        tab.page.evaluate("window.isHidden = false; window.shown.length = 0")
        for number in (1, 2):
            assert harness.run("review", f"LLD-{number}", "--approve", program="agentos").code == 0
        assert harness.run("--all").code == 0
        expect(tab.page.locator(".run-card")).to_have_count(2)
        expect(tab.page.locator(".run-card .pill", has_text="ended")).to_have_count(2)
        assert tab.page.evaluate("window.shown") == []
        tab.page.get_by_role("button", name="Notifications on").click()
        expect(tab.page.get_by_role("button", name="Notify me")).to_be_visible()
        tab.check()
