"""The API of a page that shows a fleet: the same answers as for the runs of a home, read from Postgres."""

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fleet.harness import Fleet
from tests.fleet.served_page import served_fleet, slow_models
from tests.fleet.servers import PostgresServer, free_port, running_servers
from tests.page.served import ServedPage
from tests.scenarios.harness import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def runs(page: ServedPage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.get("/api/runs").json["runs"]
    return found


def run(page: ServedPage, number: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = page.get(f"/api/runs/S{number}").json
    return found


def states(page: ServedPage, number: int = 1) -> dict[str, str]:
    return {row["item"]: row["state"] for row in run(page, number)["rows"]}


def machine(page: ServedPage, pid: int) -> dict[str, Any]:
    """Those of earlier tests may still be known to Temporal."""
    found: list[dict[str, Any]] = page.get("/api/machines").json["machines"]
    return next((each for each in found if each["machine"].endswith(f":{pid}")), {})


def test_a_submission_is_shown_while_it_runs_and_when_it_has_ended(fleet: Fleet) -> None:
    fleet.issues(1, 2, 3)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    with served_fleet(fleet) as page:
        (listed,) = runs(page)
        assert (listed["run"], listed["state"], listed["items"], listed["done"]) == ("S1", "running", 3, 0)
        assert listed["project"] == fleet.name
        with page.events("S1") as stream:
            fleet.worker()
            events = list(stream)
        journal = [data["event"]["type"] for name, data in events if name == "journal"]
        seen = [data for name, data in events if name == "state"]
        busy = [row for state in seen for row in state["rows"] if row["keys"]]
        assert busy and {row["state"] for row in busy} == {
            "running"
        }  # from the first machine's first event on
        assert journal.count("item_started") == 3
        assert journal[0] == "run_started" and journal[-1] == "run_ended"
        assert journal.count("item_ended") == 3 and events[-1][0] == "end"
        shown = run(page)
        assert set(states(page).values()) == {"approved"}
        assert (shown["run"]["state"], shown["run"]["exit_code"], shown["run"]["done"]) == ("ended", 0, 3)
        assert shown["run"]["usage"]["calls"] == 18 == sum(row["calls"] for row in shown["rows"])
        assert shown["titles"]["LLD-2"] == "Thing 2"
        item = page.get("/api/runs/S1/items/LLD-2").json
        kinds = [document["kind"] for document in item["documents"]]
        assert (kinds.count("draft"), kinds.count("verdict"), kinds[-1]) == (3, 3, "result")
        assert len(item["calls"]) == 6
        name = next(each["name"] for each in item["documents"] if each["kind"] == "draft")
        assert page.get(f"/api/runs/S1/items/LLD-2/documents/{name}").json["source"]
        lanes = page.get("/api/runs/S1/timeline").json
        assert [lane["name"] for lane in lanes["items"]] == ["LLD-1", "LLD-2", "LLD-3"]
        assert any(
            "N1_design" in line["text"] for line in page.get("/api/runs/S1/log?item=LLD-1").json["lines"]
        )
    with served_fleet(fleet) as page:  # a new page reads the totals alone
        (again,) = runs(page)
        same = ("state", "items", "done", "cost", "results", "tokens", "exit_code")
        assert {name: again[name] for name in same} == {
            **{name: shown["run"].get(name) for name in same},
            "tokens": sum(row["tokens"] for row in shown["rows"]),
        }
    assert not list((fleet.folder / "page" / "fleet").iterdir())


def test_stopping_from_the_page_checkpoints_and_a_later_submission_leaves_the_record_as_it_was(
    fleet: Fleet,
) -> None:
    fleet.issues(*range(1, 7))
    with slow_models(fleet), served_fleet(fleet) as page:
        fleet.worker(parallel=2)
        assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
        wait_until(lambda: "running" in states(page).values())
        stopped = page.post("/api/runs/S1/requests", {"type": "stop_requested", "signal": "SIGTERM"})
        assert (stopped.status, stopped.json["changed"]) == (200, True), stopped.body
        wait_until(lambda: run(page)["run"]["state"] == "ended", 60)
        found = run(page)
        assert found["run"]["exit_code"] == 75
        listed = fleet.run("agentos", "status", "--fleet", "--json").stdout
        assert {item["state"] for item in json.loads(listed)["items"]} == {"ended"}
        # Those that a machine had begun are interrupted; the others were stopped before.
        assert set(states(page).values()) == {"interrupted", "not started"}
        assert found["run"]["next"] == [
            "It was stopped, and everything is saved. To resume, type in the project: lld-workflow --all --fleet"
        ]
        again = page.post("/api/runs/S1/requests", {"type": "stop_requested", "signal": "SIGTERM"})
        assert again.json == {"changed": False, "texts": ["Nothing of it is under way."]}
        assert fleet.run("lld-workflow", "--all", "--fleet").returncode == 0
        assert set(states(page, 2).values()) == {"approved"}
        assert [entry["run"] for entry in runs(page)] == ["S2", "S1"]
    with served_fleet(fleet) as page:
        assert {entry["run"]: entry["exit_code"] for entry in runs(page)} == {"S2": 0, "S1": 75}
        assert set(states(page).values()) <= {"interrupted", "not started"}


def test_a_failed_item_is_submitted_again_from_the_page(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    roles = "UPDATE agentos_submissions SET shared = jsonb_set(shared::jsonb, '{roles,0,models}', %s)"
    with psycopg.connect(fleet.database) as connection:
        connection.execute(roles, ('["nonsense"]',))
    fleet.worker()
    with served_fleet(fleet) as page:
        wait_until(lambda: run(page)["run"]["state"] == "ended", 60)
        (first, _) = run(page)["rows"]
        assert (first["state"], first["retryable"]) == ("failed", True)
        assert "unknown provider" in first["error"]
        with psycopg.connect(fleet.database) as connection:
            connection.execute(roles, ("[]",))
        retry = {"type": "retry_requested", "item": "LLD-1"}
        assert page.post("/api/runs/S1/requests", retry).json["run"] == "S2"
        wait_until(lambda: run(page, 2)["run"]["state"] == "ended", 60)
        assert states(page, 2) == {"LLD-1": "approved"}
        assert states(page, 1) == {"LLD-1": "failed", "LLD-2": "failed"}
        assert any("being retried" in line["text"] for line in page.get("/api/runs/S2/log").json["lines"])
        refused = page.post("/api/runs/S1/requests", retry)
        assert (refused.status, refused.json["error"]) == (400, "LLD-1 is in a later submission: see S2")
        unknown = page.post("/api/runs/S1/requests", {**retry, "item": "LLD-9"})
        assert (unknown.status, unknown.json["error"]) == (404, "LLD-9 is not in S1")


def test_a_decision_in_the_page_wakes_the_item_and_the_second_person_is_told(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft").returncode == 0
    with served_fleet(fleet) as page:
        assert (run(page)["run"]["state"], states(page)) == ("running", {"LLD-1": "parked"})
        queue = page.get("/api/reviews").json
        (waiting,) = queue["items"]
        assert (queue["waiting"], waiting["project"], waiting["run_alive"]) == (1, fleet.name, True)
        shown = page.get("/api/reviews/LLD-1").json
        assert shown["draft_text"].startswith("# ")
        decision = {
            "number": shown["number"],
            "action": "approve",
            "project": fleet.name,
            "draft": f"{shown['draft_text']}\nEdited in the page.\n",
        }
        decided = page.post("/api/reviews/LLD-1", decision)
        assert (decided.status, decided.json["warning"]) == (200, None), decided.body
        assert page.post("/api/reviews/LLD-1", decision).status in (404, 409)
        wait_until(lambda: page.get("/api/reviews").json["items"] == [], 60)  # it goes on
        wait_until(lambda: page.get("/api/reviews").json["waiting"] == 1, 60)  # the second draft
        texts = page.get("/api/runs/S1/items/LLD-1").json["documents"]
        edited = next(each["name"] for each in texts if each["kind"] == "edited")
        assert (
            "Edited in the page." in page.get(f"/api/runs/S1/items/LLD-1/documents/{edited}").json["source"]
        )


def test_a_decision_that_temporal_does_not_hear_is_kept_and_told_again(fleet: Fleet) -> None:
    fleet.issues(1)
    worker = fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft").returncode == 0
    assert worker.poll() is None
    with served_fleet(fleet, TEMPORAL_ADDRESS=f"127.0.0.1:{free_port()}") as page:
        shown = page.get("/api/reviews/LLD-1").json
        decided = page.post("/api/reviews/LLD-1", {"number": shown["number"], "action": "approve"})
        assert decided.status == 200
        assert "the decision on LLD-1 is stored, but" in decided.json["warning"]
        twice = page.post("/api/reviews/LLD-1", {"number": shown["number"], "action": "reject"})
        assert (twice.status, "already approved" in twice.json["error"]) == (409, True)


def test_machines_and_the_keys_of_the_gateway_are_shown(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    worker = fleet.worker(parallel=1)
    with served_fleet(fleet) as page:
        wait_until(lambda: machine(page, worker.pid))
        assert "lld" in machine(page, worker.pid)["workflows"]
        assert fleet.run("lld-workflow", "--all", "--fleet").returncode == 0
        wait_until(lambda: machine(page, worker.pid)["ended"] == 2)
        keys = page.get("/api/keys").json
        assert (keys["gateway"], keys["problem"]) == (fleet.gateway.url, None)
        assert {"gemini-1"} <= {key["name"] for key in keys["keys"]}
        assert all(key["base_url"] is None and key["states"] for key in keys["keys"])
        fleet.gateway.stop()
        wait_until(lambda: "cannot be reached" in (page.get("/api/keys").json["problem"] or ""))
        for secret in (fleet.gateway.token, fleet.database):
            assert secret.encode() not in page.get("/api/keys").body + page.get("/api/machines").body
    with served_fleet(fleet, AGENTOS_GATEWAY_TOKEN="") as page:
        assert page.get("/api/keys").json["problem"].startswith("to see the keys of the gateway here, set")


def test_what_a_fleet_cannot_do_is_refused_with_the_reason(fleet: Fleet) -> None:
    fleet.issues(1)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    with served_fleet(fleet) as page:
        for body, reason in (
            ({"type": "pause_requested", "now": False}, "shares its machines"),
            ({"type": "resume_requested"}, "shares its machines"),
            ({"type": "worker_count_requested", "workers": 3}, "agentos worker --parallel"),
        ):
            refused = page.post("/api/runs/S1/requests", body)
            assert (refused.status, reason in refused.json["error"]) == (400, True), refused.body
        refused = page.post("/api/keys/gemini-1", {"action": "disable"})
        assert (refused.status, "agentos keys disable" in refused.json["error"]) == (400, True)
        assert page.get("/api/runs/S9").status == page.get("/api/runs/S01x").status == 404
        assert page.get("/api/runs/S1/items/LLD-9").status == 404
        limits = run(page)["run"]["limits"]
        assert limits.keys() == {"pause", "workers", "keys"}
    with served_fleet(fleet, "--read-only") as page:
        stop = {"type": "stop_requested", "signal": "SIGTERM"}
        assert page.post("/api/runs/S1/requests", stop).status == 403
        assert page.post("/api/reviews/LLD-1", {"number": 1, "action": "approve"}).status == 403


def test_what_an_older_transaction_hides_is_waited_for(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.worker()
    with served_fleet(fleet) as page, psycopg.connect(fleet.database) as older:
        older.execute(
            "SELECT pg_current_xact_id()"
        )  # until it ends, what others commit may still be out of order
        assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
        wait_until(lambda: "approved" in fleet.run("agentos", "status", "--fleet").stdout, 60)
        assert (run(page)["run"]["state"], states(page)) == ("running", {"LLD-1": "waiting"})
        older.rollback()
        wait_until(lambda: run(page)["run"]["state"] == "ended")
        assert (states(page), run(page)["run"]["usage"]["calls"]) == ({"LLD-1": "approved"}, 6)


def test_a_machine_that_dies_leaves_no_gap_in_what_is_shown(fleet: Fleet) -> None:
    fleet.issues(1)
    with slow_models(fleet), served_fleet(fleet) as page:
        first = fleet.worker()
        assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
        wait_until(lambda: run(page)["run"]["usage"]["calls"] >= 1, 60)
        first.send_signal(signal.SIGTERM)
        first.wait(15)
        fleet.worker()
        wait_until(lambda: run(page)["run"]["state"] == "ended", 60)
        (row,) = run(page)["rows"]
        assert (row["state"], row["calls"]) == ("approved", 6)
        tokens = sum(
            call["usage"]["input_tokens"] + call["usage"]["output_tokens"]
            for call in page.get("/api/runs/S1/items/LLD-1").json["calls"]
        )
        assert row["tokens"] == tokens > 0


def test_postgres_that_restarts_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    with (
        running_servers() as (postgres, temporal),
        Fleet(tmp_path, postgres, temporal, postgres.admin_url) as fleet,
    ):
        assert fleet.run("agentos", "fleet", "init").returncode == 0
        fleet.issues(1, 2, 3)
        with slow_models(fleet), served_fleet(fleet) as page:
            fleet.worker(parallel=1)
            assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
            watch_a_restart(page, postgres)


def watch_a_restart(page: ServedPage, postgres: PostgresServer) -> None:
    with page.events("S1") as stream:
        seen = iter(stream)
        assert next(data for name, data in seen if name == "state")["run"]["problem"] is None
        postgres.stop()
        away = next(data for name, data in seen if name == "state" and data["run"]["problem"])
        assert "Postgres cannot be reached" in away["run"]["problem"]
        assert "\n" not in away["run"]["problem"]
        listed = page.get("/api/runs").json
        assert "Postgres cannot be reached" in listed["problem"] and len(listed["runs"]) == 1
        assert page.get("/api/reviews").status == 503
        assert page.get("/api/runs/S1/items/LLD-1").status == 503
        postgres.start()
        back = next(data for name, data in seen if name == "state" and not data["run"]["problem"])
        assert back["run"]["state"] == "running"
        rest = [data["event"]["type"] for name, data in seen if name == "journal"]
        assert rest[-1] == "run_ended" and page.get("/api/runs").json["problem"] is None
        assert run(page)["run"]["usage"]["calls"] == 18
