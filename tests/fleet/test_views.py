"""`status`, `watch`, `logs` and `retry` with `--fleet`, with real Postgres, Temporal and gateway."""

import contextlib
import signal

import psycopg
import pytest

from agentos.core.planning.items import Item
from agentos.core.planning.submission import ItemTask, SharedTask
from agentos.core.text.secrets import Secret
from agentos.storage.postgres.fleet_items import FleetDatabase
from tests.fleet.harness import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_watcher_who_submitted_nothing_sees_the_items_end_and_collects_their_documents(
    fleet: Fleet,
) -> None:
    fleet.issues(1, 2, 10)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    submitted = fleet.run("agentos", "status", "--fleet").stdout
    assert submitted.startswith("  LLD-1   submitted\n  LLD-2   submitted\n  LLD-10  submitted\n")
    watcher = fleet.start("agentos", "watch", "--fleet", home="bert")
    assert watcher.stdout and "Watching" in watcher.stdout.readline()
    fleet.worker(parallel=1)
    output, _ = watcher.communicate(timeout=60)
    assert watcher.returncode == 0, output
    assert "3/3 workflows complete" in output and "3 completed" in output
    assert fleet.documents() == ["LLD-001.md", "LLD-002.md", "LLD-010.md"]
    nothing = fleet.run("agentos", "watch", "--fleet")
    assert (nothing.returncode, "Nothing of this project is under way" in nothing.stdout) == (0, True)
    log = fleet.run("agentos", "logs", "--fleet", "1").stdout.splitlines()
    assert log[0].startswith(">>> Executing: N0_load_issue") and "Approved after" in log[-1]
    shown = fleet.run("agentos", "status", "--fleet").stdout
    assert "LLD-1   approved" in shown and "tokens" in shown


def test_a_watcher_who_leaves_stops_nothing(fleet: Fleet) -> None:
    fleet.issues(1)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    watcher = fleet.start("agentos", "watch", "--fleet")
    assert watcher.stdout and "Watching" in watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    output, _ = watcher.communicate(timeout=20)
    assert (watcher.returncode, "The items continue" in output) == (0, True), output
    follower = fleet.start("agentos", "logs", "--fleet", "-f", "LLD-1")
    fleet.worker()
    output, _ = follower.communicate(timeout=60)
    assert (follower.returncode, "Approved after" in output) == (0, True), output


def test_a_failed_item_is_retried_as_it_was_submitted(fleet: Fleet) -> None:
    fleet.issues(1)
    assert fleet.run("lld-workflow", "--all", "--fleet", "--detach").returncode == 0
    _set_model(fleet, "nonsense")
    follower = fleet.start("agentos", "watch", "--fleet")
    assert follower.stdout and "Watching" in follower.stdout.readline()
    declined = fleet.run("agentos", "retry", "--fleet", "LLD-1")
    assert (declined.returncode, "has not ended" in declined.stderr) == (2, True), declined.stderr
    fleet.worker()
    output, _ = follower.communicate(timeout=60)
    assert (follower.returncode, "unknown provider" in output) == (1, True), output
    failed = fleet.run("agentos", "status", "--fleet", "--failed")
    assert "agentos retry --fleet" in failed.stdout
    _set_model(fleet, "gemini/gemini-flash-latest")
    retried = fleet.run("agentos", "retry", "--fleet", "1")
    assert (retried.returncode, "queued again" in retried.stdout) == (0, True), retried.stderr
    again = fleet.run("agentos", "logs", "--fleet", "-f", "LLD-1")
    assert "Approved after" in again.stdout
    done = fleet.run("agentos", "retry", "--fleet", "LLD-1")
    assert (done.returncode, "did not fail: approved" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (("logs", "--fleet", "LLD-9"), 5, "no item 'LLD-9' of this project; its items: none"),
        (("retry", "--fleet", "LLD-9"), 5, "no item 'LLD-9'"),
        (("logs", "--fleet", "../x"), 2, "invalid item"),
        (("watch", "--fleet", "--run", "x"), 2, "drop the run"),
        (("retry", "--fleet", "LLD-9", "--run", "x"), 2, "drop the run"),
    ],
)
def test_what_the_fleet_does_not_have_is_named(
    fleet: Fleet, command: tuple[str, ...], code: int, says: str
) -> None:
    found = fleet.run("agentos", *command)
    assert (found.returncode, says in found.stderr) == (code, True), found.stderr


def test_an_item_whose_workflow_was_never_started_is_started_by_a_retry(fleet: Fleet) -> None:
    """As after a submission or a retry that Temporal cut short between the row and the workflow."""
    fleet.issues(1)
    shared = SharedTask(fleet.name, "lld", 5, 2, 1800.0, (), (), ())
    item = Item("LLD-1", "lld", 1, "Thing 1", "issues/1-thing.md", digest="d1")
    with contextlib.closing(FleetDatabase(Secret(fleet.database), fleet.name)) as database:
        database.submit(shared, [ItemTask(item)], None)
    retried = fleet.run("agentos", "retry", "--fleet", "LLD-1")
    assert (retried.returncode, "is queued again" in retried.stdout) == (0, True), retried.stderr
    declined = fleet.run("agentos", "retry", "--fleet", "LLD-1")
    assert (declined.returncode, "has not ended" in declined.stderr) == (2, True), declined.stderr


def _set_model(fleet: Fleet, model: str) -> None:
    with psycopg.connect(fleet.database) as connection:
        connection.execute(
            "UPDATE agentos_submissions SET shared = jsonb_set(shared::jsonb, '{roles,0,models}', %s::jsonb)",
            (f'["{model}"]',),
        )
