"""The page's JSON API against real runs of the offline server."""

import json

import pytest

from tests.scenarios.harness import KEYS, RunHarness, wait_until

from .served import serve

DRAFT = ("--all", "--review", "draft")


def test_a_finished_run_is_listed_and_shown_with_its_items(harness: RunHarness) -> None:
    harness.issues(1, 2)
    harness.server()
    assert harness.run("--all", "--parallel", "2").code == 0
    page = serve(harness)
    (row,) = page.get("/api/runs").json["runs"]
    assert (row["state"], row["done"], row["items"], row["workflow"]) == ("ended", 2, 2, "lld")
    shown = page.get(f"/api/runs/{row['run']}").json
    assert {entry["item"]: entry["state"] for entry in shown["rows"]} == {
        "LLD-1": "approved",
        "LLD-2": "approved",
    }
    assert shown["titles"]["LLD-1"] == "Thing 1 can be used"
    assert shown["run"]["state"] == "ended" and "Read the results" in shown["run"]["next"][0]


def test_an_item_shows_its_documents_calls_and_output(harness: RunHarness) -> None:
    harness.issue(1, "weak")
    harness.server()
    assert harness.run("--all").code == 0
    page = serve(harness)
    run = harness.runs()[0].name
    item = page.get(f"/api/runs/{run}/items/LLD-1").json
    kinds = [entry["kind"] for entry in item["documents"]]
    assert kinds == ["issue", "draft", "verdict", "draft", "verdict", "result"]
    assert [call["call"] for call in item["calls"]] == ["draft-1", "review-1", "draft-2", "review-2"]
    assert all(call["key"] and call["seconds"] > 0 for call in item["calls"])
    draft = page.get(f"/api/runs/{run}/items/LLD-1/documents/002-draft.md").json
    assert draft["nodes"][0][0] == "h1"
    diff = page.get(f"/api/runs/{run}/items/LLD-1/diff?from=002-draft.md&to=004-draft.md").json
    assert {line[0] for line in diff["lines"]} >= {" ", "+"}
    output = page.get(f"/api/runs/{run}/items/LLD-1/output").json
    assert ">>> Executing: N1_design" in output["lines"]
    assert page.get(f"/api/runs/{run}/items/LLD-1/output?after={output['offset']}").json["lines"] == []
    assert page.get(f"/api/runs/{run}/items/LLD-1/documents/..%2F..%2Fissues%2F001-thing.md").status == 404
    missing, wrong = page.get("/api/nope"), page.get("/api/preview")
    assert (missing.status, missing.json["error"]) == (404, "no such address: /api/nope")
    assert (wrong.status, wrong.json["error"]) == (405, "GET is not possible here")


def test_a_stream_delivers_every_line_of_the_journal_and_resumes_where_it_broke(harness: RunHarness) -> None:
    harness.issues(1, 2, 3)
    server = harness.server()
    page = serve(harness)
    with server.frozen():
        run = harness.start("--all", "--parallel", "2")
        wait_until(lambda: harness.events("lease_granted"))
        name = harness.runs()[0].name
        with page.events(name) as first:
            seen = []
            for kind, data in first:
                if kind == "journal":
                    seen.append(data["event"])
                if len(seen) == 5:
                    break
            position = first.last_id
    with page.events(name, position) as second:
        rest = [data for kind, data in second]
        states = [data for data in rest if "rows" in data]
        seen += [data["event"] for data in rest if "event" in data]
    assert run.wait().code == 0
    assert seen == harness.journal()
    with page.events(name, str(int(position) + 5)) as third:  # inside a line: from the next one on
        assert [data["event"] for kind, data in third if kind == "journal"] == seen[6:]
    assert states[-1]["run"]["state"] in ("ended", "running")
    rows = {row["item"]: row["state"] for state in states for row in state["rows"]}
    assert rows == dict.fromkeys(("LLD-1", "LLD-2", "LLD-3"), "approved")


def test_a_parked_draft_is_edited_and_approved_and_the_run_goes_on(harness: RunHarness) -> None:
    harness.issues(1, 2)
    server = harness.server()
    page = serve(harness)
    run = harness.start(*DRAFT, "--parallel", "2")
    wait_until(lambda: len(page.get("/api/reviews").json["items"]) >= 1)
    first = page.get("/api/reviews").json["items"][0]["item"]
    shown = page.get(f"/api/reviews/{first}").json
    edited = shown["draft_text"] + "\n## Added by a person\n\nOne more section.\n"
    answer = page.post(
        f"/api/reviews/{first}", {"number": shown["number"], "action": "approve", "draft": edited}
    )
    assert answer.status == 200, answer.body
    assert answer.json["next"] == "it goes to review"
    again = page.post(f"/api/reviews/{first}", {"number": shown["number"], "action": "reject"})
    assert again.status in (404, 409)
    wait_until(lambda: run.process.poll() is not None or harness.document(int(first[4:])).exists())
    assert server.calls()
    run.wait()
    if not harness.document(int(first[4:])).exists():
        harness.run("--all")
    assert "Added by a person" in harness.document(int(first[4:])).read_text()


ASKING = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from agentos.workflows import Workflow

class State(TypedDict, total=False):
    said: str

builder = StateGraph(State)
builder.add_node("ask", lambda state: {"said": interrupt({"ask": "Publish it?"})})
builder.add_edge(START, "ask")
workflow = Workflow.from_graph(
    builder, items="topics/*.md", input=lambda item: {}, output=lambda state, item: {"said.txt": state["said"]}
)
"""


@pytest.mark.slow
def test_a_question_of_a_graph_is_answered_in_the_page(harness: RunHarness) -> None:
    (harness.project / "topics").mkdir()
    (harness.project / "topics/1-snow.md").write_text("# Snow\n")
    (harness.project / "flow.py").write_text(ASKING)
    command = ("run", "flow:workflow", "--all", "--offline")
    assert harness.run(*command, program="agentos").code == 0
    page = serve(harness)
    shown = page.get("/api/reviews/TOPICS-1").json
    [question] = shown["questions"]
    assert question["value"] == {"ask": "Publish it?"} and shown["gate"] == "question"
    body = {"number": shown["number"], "action": "answer"}
    assert page.post("/api/reviews/TOPICS-1", {**body, "action": "approve"}).status == 400
    answer = page.post("/api/reviews/TOPICS-1", {**body, "answers": {question["id"]: "yes"}})
    assert answer.status == 200 and answer.json["next"] == "its graph continues with your answer", answer.body
    assert harness.run(*command, program="agentos").code == 0
    assert (harness.project / "said.txt").read_text() == "yes"


def test_of_two_people_who_decide_at_once_the_second_is_told(harness: RunHarness) -> None:
    harness.issue(1)
    harness.server()
    assert harness.run(*DRAFT).code == 0
    page = serve(harness)
    shown = page.get("/api/reviews/LLD-1").json
    body = {"number": shown["number"], "action": "approve"}
    assert harness.run("review", "LLD-1", "--approve", program="agentos").code == 0
    second = page.post("/api/reviews/LLD-1", body)
    assert second.status == 409 and "already approved" in second.json["error"]
    stale = page.post("/api/reviews/LLD-1", {**body, "number": shown["number"] + 1})
    assert stale.status == 409


def test_a_run_is_paused_and_resumed_by_the_requests_of_other_terminals(harness: RunHarness) -> None:
    harness.issues(1, 2)
    server = harness.server()
    page = serve(harness)
    with server.frozen():
        run = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        name = harness.runs()[0].name
        paused = page.post(f"/api/runs/{name}/requests", {"type": "pause_requested", "now": False})
        assert paused.status == 200 and paused.json["changed"], paused.body
        assert page.get(f"/api/runs/{name}").json["run"]["state"] == "paused"
        more = page.post(f"/api/runs/{name}/requests", {"type": "worker_count_requested", "workers": 2})
        assert "2 workers" in more.json["texts"][0]
        wrong = page.post(f"/api/runs/{name}/requests", {"type": "retry_requested", "item": "LLD-9"})
        assert wrong.status == 400 and "not in this run" in wrong.json["error"]
        resumed = page.post(f"/api/runs/{name}/requests", {"type": "resume_requested"})
        assert resumed.json["changed"]
    assert run.wait().code == 0
    late = page.post(f"/api/runs/{name}/requests", {"type": "pause_requested"})
    assert late.status == 400 and "no longer in progress" in late.json["error"]


def test_after_a_kill_the_page_says_so_and_shows_the_command_that_resumes(harness: RunHarness) -> None:
    harness.issues(1)
    server = harness.server()
    page = serve(harness)
    with server.frozen():
        run = harness.start("--all")
        wait_until(lambda: harness.events("lease_granted"))
        name = harness.runs()[0].name
        run.process.kill()
        run.process.wait()
        wait_until(lambda: page.get(f"/api/runs/{name}").json["run"]["state"] == "killed")
    (row,) = page.get("/api/runs").json["runs"]
    killed = page.get(f"/api/runs/{name}").json["run"]
    assert (row["running"], killed["running"]) == (0, 0)
    (text,) = killed["next"]
    assert "It was killed. Resume with: " in text and text.endswith("lld-workflow --all)")


def test_read_only_refuses_every_change(harness: RunHarness) -> None:
    harness.issue(1)
    harness.server()
    assert harness.run(*DRAFT).code == 0
    page = serve(harness, "--read-only")
    name = harness.runs()[0].name
    for path, body in (
        (f"/api/runs/{name}/requests", {"type": "stop_requested", "signal": "SIGTERM"}),
        ("/api/reviews/LLD-1", {"number": 1, "action": "approve"}),
        ("/api/keys/key-1", {"action": "disable"}),
        ("/api/links", {}),
    ):
        answer = page.post(path, body)
        assert answer.status == 403 and "read-only" in answer.json["error"], path
    assert page.get("/api/reviews").json["waiting"] == 1


def test_a_key_is_disabled_enabled_and_cooled_down(harness: RunHarness) -> None:
    harness.issue(1)
    server = harness.server(keys=KEYS[:1])
    harness.keys = ()
    table = (
        f'[[credential]]\nname = "work"\nprovider = "gemini"\nkey = "{KEYS[0]}"\nbase_url = "{server.url}"\n'
    )
    harness.home.mkdir(mode=0o700, exist_ok=True)
    credentials = harness.home / "credentials.toml"
    credentials.write_text(table)
    credentials.chmod(0o600)
    page = serve(harness)

    def states() -> list[str]:
        (key,) = page.get("/api/keys").json["keys"]
        return [entry["state"] for entry in key["states"]]

    assert states() == ["available"]
    assert page.post("/api/keys/work", {"action": "disable"}).json == {"key": "work", "action": "disable"}
    assert states() == ["disabled"] and "enabled = false" in credentials.read_text()
    assert harness.run("--all").code == 4, "a run does not use it"
    assert page.post("/api/keys/work", {"action": "enable"}).status == 200
    assert states() == ["available"]
    assert page.post("/api/keys/work", {"action": "cooldown", "seconds": 600}).status == 200
    (key,) = page.get("/api/keys").json["keys"]
    (state,) = key["states"]
    assert (
        state["state"] == "rate limited" and 500 < state["until"] - page.get("/api/keys").json["now"] <= 600
    )
    for body in (
        {"action": "cooldown", "seconds": 0},
        {"action": "rest"},
        {"action": "cooldown", "seconds": True},
    ):
        assert page.post("/api/keys/work", body).status == 400, body


def test_no_answer_contains_a_key(harness: RunHarness) -> None:
    harness.issue(1)
    issue = harness.project / "issues" / "001-thing.md"
    harness.server()
    issue.write_text(issue.read_text() + f"\n- The key {harness.keys[0]} was pasted here.\n")
    harness.run("--all")
    page = serve(harness)
    name = harness.runs()[0].name
    paths = ["/api/runs", f"/api/runs/{name}", f"/api/runs/{name}/log", "/api/keys", "/api/reviews"]
    paths += [
        f"/api/runs/{name}/items/LLD-1",
        f"/api/runs/{name}/timeline",
        f"/api/runs/{name}/items/LLD-1/output",
    ]
    paths += [f"/api/runs/{name}/items/LLD-1/documents/001-issue.md"]
    bodies = [page.get(path).body for path in paths]
    with page.events(name) as stream:
        bodies += [json.dumps(data).encode() for _, data in stream]
    assert all(key.encode() not in body for key in harness.keys for body in bodies)


def test_a_run_with_page_prints_its_address_and_takes_the_page_along(harness: RunHarness) -> None:
    harness.issue(1)
    harness.server()
    run = harness.start("--all", "--page")
    run.wait_for("[COORDINATOR] Page: http://127.0.0.1:")
    done = run.wait()
    assert done.code == 0 and not run.processes()
    assert "The page ends with the run" in done.out
