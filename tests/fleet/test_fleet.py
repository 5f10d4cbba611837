"""The commands of a fleet, with real Postgres, Temporal and gateway on loopback."""

import json
import signal
import time
import urllib.request
from pathlib import Path

import psycopg
import pytest

from tests.fleet.harness import Fleet, are_gone, processes_below
from tests.fleet.servers import PostgresServer, free_port, running_servers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
CALLS_PER_ITEM = 6  # three drafts, three reviews


def test_two_workers_finish_a_backlog_and_its_documents_are_collected(fleet: Fleet) -> None:
    fleet.issues(1, 2, 3, 4, 5, 6)
    assert fleet.run("agentos", "fleet", "init").returncode == 0
    fleet.worker()
    fleet.worker()
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Starting parallel execution of 6 items with 6 workers on 2 machines" in done.stdout
    assert "6/6 workflows complete" in done.stdout
    assert "[LLD-4] >>> Executing: N1_design" in done.stdout
    assert fleet.documents() == [f"LLD-00{n}.md" for n in range(1, 7)]
    assert sorted(path.name for path in (fleet.project / "docs/lineage/done").iterdir()) == [
        f"{n}-lld" for n in range(1, 7)
    ]
    assert all(f"[{fleet.name}.LLD-" in fleet.log(n).read_text() for n in (1, 2))
    again = fleet.run("lld-workflow", "--all", "--fleet")
    assert (again.returncode, "Nothing is pending" in again.stdout) == (0, True)


def test_a_drained_worker_hands_its_items_over_and_repeats_no_call(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    fleet.worker()
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 143
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0, output
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]
    assert fleet.calls() == 2 * CALLS_PER_ITEM


def test_an_item_that_cannot_start_fails_alone_and_may_be_submitted_again(fleet: Fleet) -> None:
    fleet.issues(1)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    with psycopg.connect(fleet.database) as connection:
        connection.execute(
            "UPDATE agentos_submissions SET shared = jsonb_set(shared::jsonb, '{roles,0,models}', '[\"nonsense\"]')"
        )
    worker = fleet.worker()
    fleet.wait_until(lambda: "Cannot start here" in fleet.log(1).read_text(), "the rejection")
    fleet.wait_until(
        lambda: "unknown provider" in fleet.run("agentos", "status", "--fleet").stdout, "the reason", 30
    )
    fleet.issues(2)
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]
    assert worker.poll() is None


def test_kill_9_leaves_no_process_and_the_item_goes_on_elsewhere(fleet: Fleet) -> None:
    fleet.issues(1)
    first = fleet.worker()
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    below = processes_below(first.pid)
    fleet.kill(first)
    assert are_gone(below)
    fleet.worker()
    output, _ = follower.communicate(timeout=90)
    assert follower.returncode == 0, output
    assert fleet.documents() == ["LLD-001.md"]


def test_detached_items_are_collected_later_and_other_content_is_never_overwritten(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    submitted = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
    assert submitted.returncode == 0 and "Submitted 2 items" in submitted.stdout
    fleet.worker()
    target = fleet.project / "docs/lld/active/LLD-001.md"
    fleet.wait_until(lambda: fleet.log(1).read_text().count("Approved after") == 2, "both items")
    target.parent.mkdir(parents=True)
    target.write_text("mine\n")
    collected = fleet.run("agentos", "collect")
    assert collected.returncode == 1
    assert "LLD-001.md has other content" in collected.stderr
    assert target.read_text() == "mine\n"
    assert (fleet.project / "docs/lld/active/LLD-002.md").exists()
    target.unlink()
    assert fleet.run("agentos", "collect").returncode == 0
    assert target.exists()
    target.unlink()
    assert "Nothing new" in fleet.run("agentos", "collect").stdout
    assert not target.exists()


def test_ctrl_c_checkpoints_the_items_and_the_same_command_goes_on(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    fleet.worker(parallel=1)
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    follower.send_signal(signal.SIGINT)
    output, _ = follower.communicate(timeout=15)
    assert follower.returncode == 130, output
    assert "Shutting down" in output
    done = fleet.run("lld-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md"]


def test_items_wait_for_a_restarting_postgres_and_pay_for_no_answer_twice(tmp_path: Path) -> None:
    with (
        running_servers() as (postgres, temporal),
        Fleet(tmp_path, postgres, temporal, postgres.admin_url) as fleet,
    ):
        assert fleet.run("agentos", "fleet", "init").returncode == 0
        missing = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
        assert missing.returncode == 0 and "Nothing is pending" in missing.stdout
        fleet.issues(1, 2, 3)
        submitted = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
        assert "no worker takes lld items" in submitted.stdout
        follower = fleet.start("lld-workflow", "--all", "--fleet")
        fleet.worker()
        fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
        for _ in range(2):
            postgres.stop(signal.SIGINT)
            fleet.wait_until(lambda: "is unreachable" in fleet.log(1).read_text(), "the wait for Postgres")
            postgres.start()
        output, _ = follower.communicate(timeout=90)
        assert follower.returncode == 0, output
        assert fleet.documents() == ["LLD-001.md", "LLD-002.md", "LLD-003.md"]
        assert "attempt 2" not in fleet.log(1).read_text().casefold()
        assert fleet.calls() == 18  # three drafts and three reviews each, none twice


def test_an_item_parked_on_the_fleet_goes_on_after_its_review(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.worker()
    parked = fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft")
    assert parked.returncode == 0, parked.stdout
    assert "waits for a person" in fleet.run("agentos", "status", "--fleet").stdout
    shown = fleet.run("agentos", "review", "LLD-1", "--show", "--fleet")
    assert shown.returncode == 0 and "# " in shown.stdout
    decided = fleet.run("agentos", "review", "LLD-1", "--approve", "--fleet")
    assert decided.returncode == 0, decided.stdout + decided.stderr
    fleet.wait_until(lambda: fleet.log(1).read_text().count("N3_review") > 0, "the review")


def test_a_decision_that_temporal_did_not_hear_of_is_told_again_by_whoever_joins(fleet: Fleet) -> None:
    fleet.issues(1)
    fleet.worker()
    assert fleet.run("lld-workflow", "--all", "--fleet", "--review", "draft").returncode == 0
    away = {"TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}"}
    decided = fleet.run("agentos", "review", "LLD-1", "--approve", "--fleet", variables=away)
    assert decided.returncode == 3, decided.stdout + decided.stderr
    assert "the decision on LLD-1 is stored, but its workflow could not be notified" in decided.stderr
    joined = fleet.run("lld-workflow", "1", "--fleet")
    assert joined.returncode == 0 and "N3_review" in joined.stdout, joined.stdout + joined.stderr


def test_stop_on_the_fleet_ends_what_is_under_way(fleet: Fleet) -> None:
    fleet.issues(*range(1, 13))
    fleet.worker(parallel=1)
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: "N1_design" in fleet.log(1).read_text(), "the first draft")
    stopped = fleet.run("agentos", "stop", "--fleet")
    assert stopped.returncode == 0 and "Stopping" in stopped.stdout
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 75, output


def test_items_that_no_machine_has_are_stopped_at_once_and_said_to_be(fleet: Fleet) -> None:
    fleet.issues(1, 2)
    follower = fleet.start("lld-workflow", "--all", "--fleet")
    fleet.wait_until(
        lambda: "LLD-2  submitted" in fleet.run("agentos", "status", "--fleet").stdout, "the submission", 30
    )
    started_at = time.monotonic()
    follower.send_signal(signal.SIGINT)
    output, _ = follower.communicate(timeout=15)
    assert (follower.returncode, time.monotonic() - started_at < 5) == (130, True), output
    assert "LLD-2  interrupted" in fleet.run("agentos", "status", "--fleet").stdout
    fleet.run("lld-workflow", "1", "--fleet", "--detach")
    assert "Stopping 1 item" in fleet.run("agentos", "stop", "--fleet").stdout
    assert "LLD-1  interrupted" in fleet.run("agentos", "status", "--fleet").stdout
    assert "Nothing of this project" in fleet.run("agentos", "watch", "--fleet").stdout


def test_an_item_under_way_with_another_text_is_left_out_and_named(fleet: Fleet) -> None:
    fleet.issues(1)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    issue = fleet.project / "issues/1-thing.md"
    issue.write_text(issue.read_text() + "- more\n")
    alone = fleet.run("lld-workflow", "--all", "--fleet")
    assert (alone.returncode, "Nothing was submitted" in alone.stdout) == (0, True), alone.stdout
    fleet.issues(2)
    issue.write_text(issue.read_text() + "- more\n")
    found = fleet.run("lld-workflow", "--all", "--fleet", "--detach")
    assert "LLD-1 is under way with another text, and left out" in found.stdout
    assert (found.returncode, "Submitted 1 item " in found.stdout) == (0, True), found.stdout


def test_two_people_who_submit_an_item_follow_one_workflow(fleet: Fleet) -> None:
    fleet.issues(1)
    first = fleet.start("lld-workflow", "--all", "--fleet", home="anna")
    fleet.wait_until(
        lambda: "LLD-1" in fleet.run("agentos", "status", "--fleet").stdout, "the first submission", 30
    )
    second = fleet.start("lld-workflow", "--all", "--fleet", home="bert")
    fleet.worker()
    outputs = [person.communicate(timeout=60)[0] for person in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], "\n".join(outputs)
    assert all("1 completed" in output for output in outputs)
    assert fleet.calls() == 6


def test_a_worker_shows_metrics_and_health_and_logs_json(fleet: Fleet) -> None:
    fleet.issues(1)
    address = f"127.0.0.1:{free_port()}"
    worker = fleet.worker(2, "--metrics", address, "--log", "json")
    assert (_page(address, "/healthz"), _page(address, "/readyz")) == ("ok\n", "ok\n")
    taken = fleet.run("agentos", "worker", "--metrics", address)
    assert (taken.returncode, f"cannot serve metrics on {address}" in taken.stderr) == (3, True), taken.stderr
    assert fleet.run("lld-workflow", "--all", "--fleet").returncode == 0
    numbers = _page(address, "/metrics")
    assert 'agentos_worker_turns_total{ending="finished"} 1\n' in numbers
    assert 'agentos_worker_calls_total{provider="gemini"} 6\n' in numbers
    assert "agentos_worker_items 0\n" in numbers
    lines = [json.loads(line) for line in fleet.log(1).read_text().splitlines()]
    assert all({"time", "level", "event", "text"} <= line.keys() for line in lines)
    assert {"worker_started", "node_started", "item_ended"} <= {line["event"] for line in lines}
    assert f"{fleet.name}.LLD-1" in {line.get("item") for line in lines}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 143


def _page(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        found: str = answer.read().decode()
    return found


@pytest.mark.parametrize(
    ("command", "environment", "code", "says"),
    [
        (
            ("agentos", "run", "own:Workflow", "--all", "--fleet"),
            {},
            2,
            "install the workflow on every worker",
        ),
        (("lld-workflow", "--all", "--fleet", "--offline"), {}, 2, "agentos gateway --offline"),
        (("lld-workflow", "--all", "--detach"), {}, 2, "--detach needs --fleet"),
        (("issue-workflow", "--all", "--fleet"), {}, 2, "files at GitHub"),
        (("lld-workflow", "1", "--fleet"), {"AGENTOS_WORKFLOW_DB": "x.db"}, 2, "AGENTOS_WORKFLOW_DB"),
        (
            ("lld-workflow", "--all", "--fleet"),
            {"AGENTOS_POSTGRES": "postgresql://127.0.0.1:1/x"},
            3,
            "Postgres cannot be used",
        ),
        (
            ("lld-workflow", "--all", "--fleet"),
            {"AGENTOS_POSTGRES": "nonsense"},
            3,
            "invalid AGENTOS_POSTGRES",
        ),
        (
            ("agentos", "fleet", "init"),
            {"TEMPORAL_ADDRESS": "127.0.0.1:1"},
            3,
            "Temporal cannot be used at 127.0.0.1:1",
        ),
        (
            ("agentos", "fleet", "init"),
            {"TEMPORAL_ADDRESS": "not an address"},
            3,
            "Temporal cannot be used at not an address",
        ),
        (
            ("lld-workflow", "--all", "--fleet"),
            {"TEMPORAL_NAMESPACE": "missing"},
            3,
            "nothing was submitted. Check TEMPORAL_NAMESPACE",
        ),
        (
            ("agentos", "fleet", "init"),
            {
                "PGPASSWORD": "canary-password",
                "AGENTOS_POSTGRES": "postgresql://nobody:canary-password@127.0.0.1:1/x",
            },
            3,
            "Postgres cannot be used",
        ),
        (("agentos", "worker"), {"AGENTOS_GATEWAY": ""}, 3, "no gateway"),
        (("agentos", "worker", "--parallel", "auto"), {}, 2, "needs a number"),
        (("agentos", "worker"), {"TEMPORAL_NAMESPACE": "missing"}, 3, "gives this worker no items"),
        (("agentos", "worker"), {"AGENTOS_GATEWAY": "http://10.0.0.5:8484"}, 3, "has no TLS"),
        (("agentos", "worker"), {"AGENTOS_GATEWAY": "http://127.0.0.1:1"}, 3, "cannot be reached"),
        (("agentos", "worker"), {"AGENTOS_GATEWAY_TOKEN": ""}, 3, "no token"),
        (("agentos", "worker"), {"AGENTOS_GATEWAY_TOKEN": "agentos.x.y"}, 3, "does not accept"),
    ],
)
def test_what_cannot_work_says_so(
    fleet: Fleet, command: tuple[str, ...], environment: dict[str, str], code: int, says: str
) -> None:
    fleet.issues(1)
    found = fleet.run(*command, variables=environment)
    assert (found.returncode, says in found.stderr) == (code, True), found.stderr
    assert "Traceback" not in found.stderr and "canary" not in found.stderr


def test_a_project_without_a_name_and_missing_tables_say_what_to_do(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    found = fleet.run("agentos", "collect", variables={"AGENTOS_POSTGRES": postgres.admin_url})
    assert (found.returncode, "agentos fleet init" in found.stderr) == (3, True)
    (fleet.project / "agentos.toml").write_text("")
    found = fleet.run("agentos", "collect")
    assert (found.returncode, '[fleet] project = "shop"' in found.stderr) == (3, True)
