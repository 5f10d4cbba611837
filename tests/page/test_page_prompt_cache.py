"""What a program under `agentos exec` read from and wrote to the prompt cache, wherever a run's tokens are shown."""

import json
from typing import TYPE_CHECKING

import pytest

from agentos.core.protocol.results import Usage
from agentos.http.connection import Connection, HttpRequest
from tests.gateway.harness import credentials
from tests.gateway.scripted import provider, whole
from tests.scenarios.harness import RunHarness

from .served import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MODEL = "claude-sonnet-4-5"
AGENT = """import json, os, urllib.request
body = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": []}).encode()
for _ in range(2):
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).read()
"""
FIRST = {"input_tokens": 10, "output_tokens": 40, "cache_creation_input_tokens": 30_000}
SECOND = {"input_tokens": 20, "output_tokens": 50, "cache_read_input_tokens": 30_000}


def run_agent(harness: RunHarness) -> str:
    """An item with a call that fills the cache and one that reads it; returns the name of its run."""
    (harness.project / "agent.py").write_text(AGENT)
    answers = [FIRST, SECOND]

    async def answer(request: HttpRequest, connection: Connection) -> None:
        usage = answers.pop(0)
        message = {"type": "message", "role": "assistant", "model": MODEL, "content": [], "usage": usage}
        whole(connection, 200, json.dumps(message).encode())

    with provider(answer) as url:
        variables = credentials(url, harness.keys[:1], "anthropic")
        done = harness.run("exec", "a", "--", "python3", "agent.py", program="agentos", **variables)
    assert done.code == 0, done.out
    assert "60,030 in (30,000 read from the cache, 30,000 written to it), 90 out, 2 calls" in done.out
    return harness.runs()[0].name


def test_the_tokens_of_the_prompt_cache_are_told_everywhere(harness: RunHarness) -> None:
    run = run_agent(harness)
    usage = {"cache_read_tokens": 30_000, "cache_write_tokens": 30_000}
    assert harness.summary()["usage"].items() >= usage.items()
    assert harness.summary()["items"][0]["usage"].items() >= usage.items()
    for words in (("status", "-v"), ("report",)):
        shown = harness.run(*words, program="agentos").out
        assert "(30,000 read from the cache, 30,000 written to it)" in shown, words
    status = json.loads(harness.run("status", "--json", program="agentos").out)
    assert status["usage"].items() >= usage.items()
    page = serve(harness)
    shown = page.get(f"/api/runs/{run}").json
    assert shown["run"]["usage"].items() >= usage.items() and shown["rows"][0].items() >= usage.items()
    first, second = page.get(f"/api/runs/{run}/items/a").json["calls"]
    assert Usage(**first["usage"]) == Usage(1, 30_010, 40, cache_write_tokens=30_000)
    assert Usage(**second["usage"]) == Usage(1, 30_020, 50, cache_read_tokens=30_000)
    assert first["key"] == second["key"] and first["cost"] > 5 * second["cost"] > 0 < first["seconds"]


@pytest.mark.slow
def test_the_page_shows_the_tokens_of_the_prompt_cache(browser: "Browser", harness: RunHarness) -> None:
    from playwright.sync_api import expect

    from .browser import open_tab

    run = run_agent(harness)
    text = "30k read from the cache, 30k written to it"
    with open_tab(browser, harness) as tab:
        tab.go(f"runs/{run}")
        expect(tab.page.locator(".figures div", has_text="Prompt cache").locator("dd")).to_have_text(text)
        expect(tab.page.locator(f"td[title='{text}']")).to_have_text("60k")
        tab.go(f"runs/{run}/items/a")
        expect(tab.page.locator("section.card").first).to_contain_text(f"60k tokens ({text})")
        tab.page.locator("#tab-calls").click()
        rows = tab.page.locator(".plain-table tr")
        expect(rows.nth(0)).to_contain_text("Cache readCache written")
        expect(rows.nth(1).locator("td").nth(5)).to_have_text("30,010")
        expect(rows.nth(1).locator("td").nth(7)).to_have_text("30,000")
        expect(rows.nth(2).locator("td").nth(6)).to_have_text("30,000")
        tab.check()
