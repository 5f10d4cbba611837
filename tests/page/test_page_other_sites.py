"""Another site in the same Chromium, which holds a session: it can neither read, change, frame nor script the page."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser

from tests.scenarios.harness import RunHarness

from .browser import open_tab

pytestmark = pytest.mark.slow
ATTACKS = """async (url) => {
  const outcome = {};
  const attempt = async (name, act) => { try { outcome[name] = await act(); } catch (error) { outcome[name] = "nothing"; } };
  const ask = (path, options) => fetch(url + path, options).then((answer) => answer.text());
  await attempt("read", () => ask("/api/runs", { credentials: "include" }));
  await attempt("read with a header", () => ask("/api/runs", { credentials: "include", headers: { "x-agentos-session": "guess" } }));
  await attempt("blind read", () => fetch(url + "/api/runs", { mode: "no-cors", credentials: "include" }).then((answer) => answer.text().then((text) => text || "nothing")));
  await attempt("change", () => ask("/api/links", { method: "POST", credentials: "include", body: "{}" }));
  await attempt("change as text", () => fetch(url + "/api/links", { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then((answer) => answer.text().then((text) => text || "nothing")));
  await attempt("log in", () => ask("/login", { method: "POST", body: '{"token": "guess"}', headers: { "content-type": "application/json" } }));
  await attempt("socket", () => new Promise((resolve, reject) => { const socket = new WebSocket(url.replace("http", "ws") + "/api/runs"); socket.onopen = () => resolve("open"); socket.onerror = reject; }));
  await attempt("events", () => new Promise((resolve, reject) => { const source = new EventSource(url + "/api/runs/x/events", { withCredentials: true }); source.onopen = () => resolve("open"); source.onerror = () => { source.close(); reject(); }; }));
  for (const [tag, path] of [["script", "/static/main.js"], ["link", "/static/style.css"], ["img", "/api/runs"]]) {
    await attempt(tag, () => new Promise((resolve, reject) => {
      const element = document.createElement(tag);
      element.onload = () => resolve("loaded"); element.onerror = reject;
      if (tag === "link") { element.rel = "stylesheet"; element.href = url + path; } else element.src = url + path;
      document.body.append(element);
    }));
  }
  for (const path of ["/", "/login"]) {
    await attempt(`frame ${path}`, () => new Promise((resolve) => {
      const frame = document.createElement("iframe");
      frame.onload = () => { try { resolve(frame.contentDocument?.body?.innerText || "nothing"); } catch { resolve("nothing"); } };
      frame.src = url + path;
      document.body.append(frame);
    }));
  }
  return outcome;
}"""


class _EmptyPage(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><body>")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def other_site() -> Iterator[int]:
    """A site on another port of the same machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_another_site_in_the_same_browser_gets_nothing(
    browser: Browser, harness: RunHarness, name: str
) -> None:
    """By its address, another port has the same cookies as the page; by its name, it is another site."""
    with other_site() as port, open_tab(browser, harness) as tab:
        context = tab.page.context
        attacker = context.new_page()
        answers: list[tuple[str, int]] = []
        attacker.on("response", lambda answer: answers.append((answer.url, answer.status)))
        attacker.goto(f"http://{name}:{port}/")
        outcome = attacker.evaluate(ATTACKS, tab.served.url)
        assert outcome == dict.fromkeys(outcome, "nothing") and len(outcome) == 13
        got = [(url, status) for url, status in answers if url.startswith(tab.served.url) and status < 400]
        assert got == []
        # An opened window of the page tells its opener nothing either.
        with context.expect_page() as opened:
            attacker.evaluate("url => { window.other = window.open(url + '/login'); }", tab.served.url)
        opened.value.wait_for_load_state()
        assert attacker.evaluate("window.other.closed || window.other.length") in (True, 0)
        assert attacker.evaluate(
            "() => { try { return window.other.document.title; } catch { return 'nothing'; } }"
        ) in ("nothing", "")
        tab.check()
