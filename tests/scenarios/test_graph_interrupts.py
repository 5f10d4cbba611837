"""Graphs that ask a person with LangGraph's own means: interrupt() and breakpoints."""

import json
from pathlib import Path

import pytest

from .harness import CompletedCommand, RunHarness

TWO_AT_ONCE = """
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    topic: str
    said: Annotated[list[str], operator.add]

def editor(state):
    return {"said": [f"editor: {interrupt({'ask': 'Publish it?', 'topic': state['topic']})}"]}

def lawyer(state):
    first = interrupt("Is it legal?")
    second = interrupt("Is it legal?")
    return {"said": [f"lawyer: {first}, then {second}"]}

inner = StateGraph(State)
inner.add_node("lawyer", lawyer)
inner.add_edge(START, "lawyer")

outer = StateGraph(State)
outer.add_node("editor", editor)
outer.add_node("legal", inner.compile())
outer.add_edge(START, "editor")
outer.add_edge(START, "legal")

workflow = Workflow.from_graph(
    outer,
    items="topics/*.md",
    input=lambda item: {"topic": item.title},
    output=lambda state, item: {f"out/{item.id}.txt": "\\n".join(sorted(state["said"]))},
)
"""

BREAKPOINTS = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    text: str

builder = StateGraph(State)
builder.add_node("write", lambda state: {"text": "written"})
builder.add_node("publish", lambda state: {"text": state["text"] + ", published"})
builder.add_edge(START, "write")
builder.add_edge("write", "publish")
graph = builder.compile(interrupt_before=["publish"], interrupt_after=["publish"], name="press")

workflow = Workflow.from_graph(
    graph, items="topics/*.md", input=lambda item: {}, output=lambda state, item: {f"out/{item.id}.txt": state["text"]}
)
"""


@pytest.fixture
def project(harness: RunHarness) -> Path:
    (harness.project / "topics").mkdir()
    for number in (1, 2):
        (harness.project / f"topics/{number}-topic.md").write_text(f"# Topic {number}\n\nSnow.\n")
    return harness.project


def run(harness: RunHarness, *arguments: object) -> CompletedCommand:
    return harness.run("run", "flow:workflow", *arguments, "--offline", program="agentos")


def review(harness: RunHarness, *arguments: object) -> CompletedCommand:
    return harness.run("review", *arguments, program="agentos")


@pytest.mark.slow
def test_several_interrupts_at_once_also_in_a_subgraph_are_shown_and_answered(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(TWO_AT_ONCE)
    first = run(harness, "1")
    assert first.code == 0 and "Parked at" in first.out, first.out + first.err
    shown = review(harness, "TOPICS-1", "--show")
    assert '"ask": "Publish it?"' in shown.out and "Is it legal?" in shown.out, shown.out + shown.err
    assert "draft" not in shown.out + review(harness).out
    listed = json.loads(review(harness, "--json").out)["items"][0]
    values = [question["value"] for question in listed["questions"]]
    assert values == [{"ask": "Publish it?", "topic": "Topic 1"}, "Is it legal?"]

    single = review(harness, "TOPICS-1", "--answer", "true")
    assert single.code == 2 and "NUMBER=JSON for each, such as --answer 1=true" in single.err
    missing = review(harness, "TOPICS-1", "--answer", '1="yes"')
    assert missing.code == 2 and "question 2 of TOPICS-1 has no answer" in missing.err
    broken = review(harness, "TOPICS-1", "--answer", "1=yes", "--answer", "2=no")
    assert broken.code == 2 and "not JSON" in broken.err
    approved = review(harness, "TOPICS-1", "--approve")
    assert approved.code == 2 and "waits for an answer, not for a review" in approved.err

    answered = review(harness, "TOPICS-1", "--answer", '1="yes"', "--answer", '2="perhaps"')
    assert answered.code == 0 and "continues with your answer" in answered.out
    second = run(harness, "1")
    assert "Parked at legal" in second.out, second.out + second.err
    review(harness, "TOPICS-1", "--answer", '"surely"')
    assert run(harness, "1").code == 0
    text = (project / "out/TOPICS-1.txt").read_text()
    assert text == "editor: yes\nlawyer: perhaps, then surely"


@pytest.mark.slow
def test_an_item_whose_question_is_rejected_fails_and_is_not_counted_as_succeeded(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(TWO_AT_ONCE)
    run(harness, "1")
    assert "it ends as failed" in review(harness, "TOPICS-1", "--reject", "not now").out
    done = run(harness, "1")
    assert done.code == 1 and "Succeeded: 0" in done.out and "rejected by a person: not now" in done.out
    assert "start it over with --fresh TOPICS-1" in done.out
    assert "Verdicts:" not in done.out and "1 attempt" in done.out, "its graph has no reviews"
    listed = review(harness)
    assert "TOPICS-1" not in listed.out and "interrupt()" in listed.out, "the decision has taken effect"
    again = run(harness, "1")
    assert again.code == 1 and "rejected by a person: not now" in again.out
    assert "Parked at" in run(harness, "1", "--fresh").out
    assert "2 questions" in review(harness).out


@pytest.mark.slow
def test_an_item_called_by_its_file_is_dropped_when_the_file_is_gone(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(TWO_AT_ONCE)
    (project / "topics/ice.md").write_text("# Ice\n")
    run(harness, "ice")
    (project / "topics/ice.md").unlink()
    assert "agentos review TOPICS-ice --reject" in review(harness).out
    dropped = review(harness, "TOPICS-ice", "--reject")
    assert dropped.code == 0 and "it is dropped, because its file is gone" in dropped.out, dropped.err
    assert not harness.databases() and "TOPICS-ice" not in review(harness).out


@pytest.mark.slow
def test_every_question_is_answered_in_the_editor_or_none(harness: RunHarness, project: Path) -> None:
    (project / "flow.py").write_text(TWO_AT_ONCE)
    run(harness, "1")
    first = """sed -i '0,/"answer": null/s//"answer": "yes"/' "$1"\n"""
    for script, problem in (
        ("true", "Nothing was answered."),
        (first, "Nothing was answered: question 2 has no answer"),
        ('sed -i s/null/yes/ "$1"', "Nothing was answered: the form is not JSON at line 9, column 15"),
        ('echo "[]" > "$1"', "Nothing was answered: question 1 has no answer"),
    ):
        done = review_in_editor(harness, script)
        assert done.code == 1 and problem in done.out, done.out + done.err
    assert json.loads(review(harness, "--json").out)["items"][0]["decision"] is None
    assert review_in_editor(harness, first * 2).code == 0
    assert "Parked at legal" in run(harness, "1").out


@pytest.mark.slow
def test_the_editor_opens_again_with_what_was_written(harness: RunHarness, project: Path) -> None:
    (project / "flow.py").write_text(TWO_AT_ONCE)
    run(harness, "1")
    once = editor(harness, """sed -i '0,/"answer": null/s//"answer": "yes"/' "$1"\n""")
    terminal = harness.terminal("review", "TOPICS-1", "--edit", program="agentos", EDITOR=once)
    terminal.wait_for("question 2 has no answer")
    terminal.wait_for("Edit it again?")
    terminal.press("\n")
    terminal.wait_for("TOPICS-1 is answered")
    assert terminal.wait().code == 0


def review_in_editor(harness: RunHarness, script: str) -> CompletedCommand:
    path = editor(harness, script)
    return harness.run("review", "TOPICS-1", "--edit", program="agentos", EDITOR=path)


def editor(harness: RunHarness, script: str) -> str:
    path = harness.root / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_breakpoints_of_a_compiled_graph_park_the_item_until_a_person_approves(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(BREAKPOINTS)
    assert "Parked at write" in run(harness, "1").out
    assert "TOPICS-1 is waiting for a person" in run(harness, "1").out, "another run does not pass it"
    shown = review(harness, "TOPICS-1", "--show").out
    assert "stopped before publish" in shown and "agentos review TOPICS-1 --approve" in shown
    assert review(harness, "TOPICS-1", "--answer", "1").code == 2
    assert "Decide with --approve or --reject" in review(harness, "TOPICS-1").err
    assert "its graph continues" in review(harness, "TOPICS-1", "--approve").out
    assert run(harness, "1").code == 0
    assert (project / "out/TOPICS-1.txt").read_text() == "written, published"


def test_review_gates_that_a_graph_does_not_have_are_a_usage_error(
    harness: RunHarness, project: Path
) -> None:
    (project / "flow.py").write_text(BREAKPOINTS)
    done = run(harness, "1", "--review", "draft")
    assert done.code == 2 and "has no gates" in done.err, done.out + done.err
