"""`issue-workflow` on a fleet: issues are filed at GitHub, each once, whatever dies in between."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.fleet.harness import Fleet, processes_below
from tests.scenarios.github import REPOSITORY, TOKEN, FakeGitHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
BRIEF = "# Sort articles {n}\n\n## Problem\n\nThe list of articles is not sorted.\n\n## Wish\n\n- sort by date\n- keep it stable\n"


@pytest.fixture
def github(fleet: Fleet) -> Iterator[FakeGitHub]:
    settings = fleet.project / "agentos.toml"
    settings.write_text(f'github = "{REPOSITORY}"\n{settings.read_text()}')
    with FakeGitHub().serve() as server:
        # As on real machines: the token is the worker's and the submitter's own, and never travels with a submission.
        fleet.variables |= {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url, "AGENTOS_TRUST": "1"}
        yield server


def briefs(fleet: Fleet, *numbers: int) -> None:
    folder = fleet.project / "ideas/active"
    folder.mkdir(parents=True)
    for number in numbers:
        (folder / f"{number}-sort.md").write_text(BRIEF.format(n=number))


def test_briefs_become_issues_at_github_and_move_to_done(fleet: Fleet, github: FakeGitHub) -> None:
    briefs(fleet, 1, 2, 3)
    fleet.worker(2)
    fleet.worker(2)
    done = fleet.run("issue-workflow", "--all", "--fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(github.issues) == 3 and _posts(github) == 3
    assert sorted(path.name for path in (fleet.project / "ideas/done").iterdir()) == [
        f"{number}-sort.md" for number in (1, 2, 3)
    ]
    assert not list((fleet.project / "ideas/active").iterdir())
    assert TOKEN.encode() not in fleet.postgres.contents()
    again = fleet.run("issue-workflow", "--all", "--fleet")
    assert (again.returncode, len(github.issues)) == (0, 3)


@pytest.mark.parametrize("victim", ["machine", "process"])
def test_a_death_between_filing_and_recording_files_once(
    fleet: Fleet, github: FakeGitHub, victim: str
) -> None:
    briefs(fleet, 1)
    github.faults.append(("POST", "hang"))  # the issue is filed, and nobody is told
    first = fleet.worker(1)
    follower = fleet.start("issue-workflow", "--all", "--fleet")
    fleet.wait_until(lambda: len(github.issues) == 1, "the filing")
    if victim == "machine":
        fleet.kill(first)
        fleet.worker(1)
    else:
        kill_item_process(first.pid)
    output, _ = follower.communicate(timeout=120)
    assert follower.returncode == 0, output
    assert (len(github.issues), _posts(github)) == (1, 1), github.asked
    assert (fleet.project / "ideas/done/1-sort.md").exists()


def kill_item_process(worker: int) -> None:
    """Kill the newest process below the worker: the item's, which the fork server started."""
    os.kill(processes_below(worker)[-1], signal.SIGKILL)


def test_a_worker_without_a_token_fails_the_item_and_says_what_it_needs(
    fleet: Fleet, github: FakeGitHub
) -> None:
    briefs(fleet, 1)
    token = fleet.variables.pop("GITHUB_TOKEN")
    worker = fleet.worker(1)
    found = fleet.run("issue-workflow", "--all", "--fleet", variables={"GITHUB_TOKEN": token})
    assert (found.returncode, "GITHUB_TOKEN" in found.stdout) == (1, True), found.stdout + found.stderr
    assert (worker.poll(), github.issues) == (None, [])
    fleet.variables["GITHUB_TOKEN"] = token
    fleet.kill(worker)
    fleet.worker(1)
    retried = fleet.run("agentos", "retry", "--fleet", "ISSUE-1")
    assert retried.returncode == 0, retried.stderr
    log = fleet.run("agentos", "logs", "--fleet", "-f", "ISSUE-1").stdout
    assert "Filed as" in log and len(github.issues) == 1


def _posts(github: FakeGitHub) -> int:
    return sum(line.startswith("POST") for line in github.asked)
