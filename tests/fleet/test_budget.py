"""`--budget` with `--fleet`: the gateway keeps to it over all workers and over its own restarts."""

import contextlib
import json
import signal

import pytest

from agentos.offline.child import start_offline_server
from tests.fleet.harness import Fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_submission_stops_at_its_budget_over_all_workers_and_the_same_command_goes_on(fleet: Fleet) -> None:
    fleet.issues(1)
    with contextlib.closing(start_offline_server(fleet.environment("models"))) as models:
        fleet.serve_models(models)
        fleet.worker(1)
        fleet.worker(1)
        first = fleet.run("lld-workflow", "--all", "--fleet", "--budget", "50")
        assert first.returncode == 0, first.stdout + first.stderr
        (per_item,) = _spent(fleet).values()
        fleet.issues(2, 3, 4)
        budget = 2 * per_item
        stopped = fleet.run("lld-workflow", "--all", "--fleet", "--budget", f"{budget:.4f}")
        assert stopped.returncode == 75, stopped.stdout + stopped.stderr
        assert f"Stopping (budget): the next call would exceed --budget {budget:.2f} (" in stopped.stdout
        assert f"--budget {budget:.4f}" in stopped.stdout.splitlines()[-1]
        *_, second = _spent(fleet).values()
        assert per_item < second <= budget
        assert not any(
            name in fleet.log(n).read_text() for n in (1, 2) for name in ("quarantined", "rejected")
        )
        done = fleet.run("lld-workflow", "--all", "--fleet")
        assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.documents() == [f"LLD-00{number}.md" for number in range(1, 5)]
    assert fleet.calls() == 4 * 6


def test_what_was_spent_counts_after_the_gateway_was_killed(fleet: Fleet) -> None:
    fleet.issues(1)
    with contextlib.closing(
        start_offline_server(fleet.environment("models"), ("--latency", "0.2,0.2"))
    ) as models:
        fleet.serve_models(models)
        fleet.worker(1)
        assert fleet.run("lld-workflow", "--all", "--fleet", "--budget", "50").returncode == 0
        (per_item,) = _spent(fleet).values()
        fleet.issues(2, 3)
        budget = 1.5 * per_item
        follower = fleet.start("lld-workflow", "--all", "--fleet", "--budget", f"{budget:.6f}")
        fleet.wait_until(lambda: len(_spent(fleet)) == 2, "the first paid call")
        fleet.gateway.stop(signal.SIGKILL)
        before = list(_spent(fleet).values())[1]
        fleet.gateway.start(fleet.environment("gateway"))
        output, _ = follower.communicate(timeout=90)
        assert (follower.returncode, "Stopping (budget)" in output) == (75, True), output
    assert 0 < before < list(_spent(fleet).values())[1] <= budget


def test_a_model_without_a_price_fails_its_item_and_no_worker(fleet: Fleet) -> None:
    fleet.issues(1)
    (fleet.project / "agentos.toml").write_text(
        f'drafter = "gemini/unheard-of"\n[fleet]\nproject = "{fleet.name}"\n'
    )
    with contextlib.closing(start_offline_server(fleet.environment("models"))) as models:
        fleet.serve_models(models)
        worker = fleet.worker(1)
        found = fleet.run("lld-workflow", "--all", "--fleet", "--budget", "5")
        assert (found.returncode, '[prices."unheard-of"] to agentos.toml of the gateway' in found.stdout) == (
            1,
            True,
        ), found.stdout
        assert worker.poll() is None and "quarantined" not in fleet.log(1).read_text()


def _spent(fleet: Fleet) -> dict[str, float]:
    """By submission, in the order of their first calls."""
    found: dict[str, float] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (fleet.folder / "gateway/gateway/spending.jsonl").read_text().splitlines():
            entry = json.loads(line)
            found[entry["account"]] = found.get(entry["account"], 0.0) + entry["cost"]
    return found
