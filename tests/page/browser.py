"""A real Chromium for the tests of the page, logged in to a real `agentos page`."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Request, expect, sync_playwright

from tests.scenarios.harness import RunHarness

from .served import ServedPage, serve
from .setup_browser import AXE, CHROMIUM_HINT, chromium

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT = 30_000  # ms; an overloaded machine is slow
# The page's own listener runs first, and marks the view as busy.
GO = """route => new Promise((resolve) => {
  if (location.hash === route) { resolve(); return; }
  window.addEventListener("hashchange", () => resolve(), { once: true });
  location.hash = route;
})"""


def require(found: object, hint: str) -> None:
    """Skip with what to install; in CI, where it is installed first, fail."""
    if not found:
        if os.environ.get("BROWSER_TESTS") == "required":
            pytest.fail(hint)
        pytest.skip(hint)


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """The browser; start it once for many tests."""
    executable = chromium()
    require(executable, CHROMIUM_HINT)
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield opened
        opened.close()


@dataclass(slots=True)
class Tab:
    """A page in the browser, with everything that went wrong in it and everything it asked for."""

    page: Page
    served: ServedPage
    problems: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    _metrics: CDPSession | None = None

    def watch(self) -> None:
        self.page.set_default_timeout(TIMEOUT)
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self._note_request(request))

    def _note(self, kind: str, text: str) -> None:
        # Answers that the tests provoke, such as 409, are logged by the browser itself.
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self.problems.append(text)

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.served.url, "data:")):
            self.foreign.append(request.url)

    def go(self, route: str, *, wait: bool = True) -> None:
        """Open a view by its route, such as `runs/ID`, and wait until it is there."""
        self.page.evaluate(GO, f"#/{route}")
        if wait:
            self.page.wait_for_selector("#main:not([aria-busy])")

    def busy_seconds(self) -> float:
        """How much CPU time the page's own thread has used: unlike elapsed time, it does not depend on other processes."""
        if self._metrics is None:
            self._metrics = self.page.context.new_cdp_session(self.page)
            self._metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        metrics = self._metrics.send("Performance.getMetrics")["metrics"]
        return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")

    def check(self) -> None:
        """Nothing went wrong, and nothing but the page's own server was asked."""
        assert self.problems == []
        assert self.foreign == []
        assert self.page.evaluate("window.pwned") is None


@contextlib.contextmanager
def open_tab(
    browser: Browser, harness: RunHarness, *flags: str, script: str = "", **options: object
) -> Iterator[Tab]:
    """A page of this harness, logged in. `script` runs in the page before its own."""
    with open_served(browser, serve(harness, *flags), script, **options) as tab:
        yield tab


@contextlib.contextmanager
def open_served(browser: Browser, served: ServedPage, script: str = "", **options: object) -> Iterator[Tab]:
    """Log in with the link, as a person does."""
    context = browser.new_context(**options)  # type: ignore[arg-type]
    try:
        if script:
            context.add_init_script(script)
        tab = Tab(context.new_page(), served)
        tab.watch()
        tab.page.goto(served.link)
        served.links_used += 1
        tab.page.wait_for_selector("#nav a")
        assert tab.page.url == f"{served.url}/", "the token stays in the address"
        yield tab
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """What axe-core finds, of serious and critical impact."""
    page.evaluate(AXE.read_text("utf-8"))
    page.wait_for_timeout(350)  # transitions of colours and widths
    found: Any = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['target']} {node.get('failureSummary', '')}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
