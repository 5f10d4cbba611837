"""The questions of a user's graph are answered in the page, in a real Chromium."""

import pytest
from playwright.sync_api import Browser, expect

from tests.scenarios.harness import RunHarness

from .browser import TIMEOUT, open_tab

pytestmark = pytest.mark.slow
GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    topic: str
    tone: object
    length: object

def tone(state):
    return {"tone": interrupt({"ask": "Which tone?", "html": "<img src=x onerror='window.pwned=1'>"})}

def length(state):
    return {"length": interrupt("How long, for snow and for Überfluß?")}

def close(state):
    return {}

builder = StateGraph(State)
for node in (tone, length):
    builder.add_node(node)
    builder.add_edge(START, node.__name__)
builder.add_node(close)
builder.add_edge(["tone", "length"], "close")

workflow = Workflow.from_graph(
    builder.compile(interrupt_before=["close"]),
    items="topics/*.md",
    input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.txt": repr((state["tone"], state["length"]))},
)
"""


def run_all(harness: RunHarness, *items: str) -> int:
    return harness.run("run", "flow:workflow", *(items or ("--all",)), "--offline", program="agentos").code


@pytest.fixture
def graph(harness: RunHarness) -> RunHarness:
    (harness.project / "topics").mkdir()
    for number, name in enumerate(("Schnee & Eis", "Regen"), 1):
        (harness.project / f"topics/{number}-topic.md").write_text(f"# {name}\n")
    (harness.project / "flow.py").write_text(GRAPH)
    assert run_all(harness) == 0
    return harness


def test_two_questions_at_once_are_answered_and_a_breakpoint_is_passed(
    browser: Browser, graph: RunHarness
) -> None:
    with open_tab(browser, graph) as tab:
        page = tab.page
        tab.go("decisions/TOPICS-1")
        expect(page.locator(".decision h2")).to_have_text("TOPICS-1: Schnee & Eis")
        boxes = page.locator("textarea[data-question]")
        expect(boxes).to_have_count(2)
        expect(page.locator(".decision pre", has_text="How long, for snow and for Überfluß?")).to_be_visible()
        expect(page.locator(".decision pre", has_text="<img src=x")).to_be_visible()
        # Typing is not a command, and what is not JSON is refused where it stands.
        for box in (boxes.nth(0), boxes.nth(1)):
            box.press_sequentially("are you sure")
        page.locator("[data-test=answer]").click()
        expect(page.locator(".toast", has_text="That is not JSON")).to_be_visible()
        expect(boxes.nth(0)).to_be_focused()
        expect(boxes.nth(0)).to_have_value("are you sure")
        first_is_tone = page.locator(".decision h3").nth(0).text_content() == "Question 1, tone"
        for box, value in zip((boxes.nth(0), boxes.nth(1)), ('{"dry": "é"}', "[1, 2]"), strict=True):
            box.fill(value)
        page.locator("[data-test=answer]").click()
        expect(page.locator(".notice")).to_contain_text("TOPICS-1. Resume with: ", timeout=TIMEOUT)
        expect(page.locator(".decision h2")).to_have_text("TOPICS-2: Regen")
        assert run_all(graph, "1") == 0
        tab.go("runs")
        tab.go("decisions/TOPICS-1")
        expect(page.locator("[data-test=approve]")).to_have_text("Continuea")
        expect(page.locator("textarea[data-question]")).to_have_count(0)
        page.locator("[data-test=approve]").click()
        expect(page.locator(".notice")).to_contain_text("TOPICS-1. Resume with: ", timeout=TIMEOUT)
        tab.check()
    assert run_all(graph, "1") == 0
    answers = ({"dry": "é"}, [1, 2])
    expected = answers if first_is_tone else answers[::-1]
    assert (graph.project / "out/TOPICS-1.txt").read_text() == repr(expected)


def test_a_rejected_question_ends_its_item_as_failed(browser: Browser, graph: RunHarness) -> None:
    with open_tab(browser, graph) as tab:
        tab.go("decisions/TOPICS-2")
        expect(tab.page.locator(".decision h2")).to_have_text("TOPICS-2: Regen")
        tab.page.locator("[data-test=reject]").click()
        expect(tab.page.locator("dialog")).to_contain_text("It ends as failed.")
        tab.page.locator("dialog textarea").fill("not this one")
        tab.page.get_by_role("button", name="Reject").last.click()
        expect(tab.page.locator(".toast", has_text="TOPICS-2")).to_be_visible()
        tab.check()
    assert run_all(graph, "2") == 1
    [ended] = graph.events("item_ended")
    assert ended["outcome"]["error"] == "rejected by a person: not this one"


def test_a_read_only_page_shows_the_questions_and_takes_no_answer(
    browser: Browser, graph: RunHarness
) -> None:
    with open_tab(browser, graph, "--read-only") as tab:
        tab.go("decisions/TOPICS-1")
        expect(tab.page.locator("textarea[data-question]").first).to_be_disabled()
        expect(tab.page.locator("[data-test=answer]")).to_have_count(0)
        tab.check()
