"""Two containers sharing one home: a live run is never mistaken for a dead one, and its files are kept."""

import subprocess
from pathlib import Path

import pytest

from tests.scenarios.harness import RunHarness

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def has_namespaces() -> bool:
    return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_namespaces(), reason="needs pid namespaces (run as root)")


@pytest.mark.slow
def test_a_run_in_another_container_counts_as_alive_and_is_not_pruned(harness: RunHarness) -> None:
    harness.issues(1, 2)
    server = harness.server()

    def run_in_container(*args: object, program: str = "agentos") -> str:
        done = harness.start(*args, program=program, before=CONTAINER).wait(60)
        return done.out + done.err

    with server.frozen():
        running = harness.start("1", before=CONTAINER)
        running.wait_for("Executing: N1_design", 60)
        listed = run_in_container("runs")
        assert "running" in listed and "killed" not in listed
        assert "is running" in run_in_container("status")
        run_in_container("runs", "prune", "--keep", "1")
        (run,) = harness.runs()
        assert any(path.is_socket() for path in run.iterdir())
        assert "LLD-1" in run_in_container("1", "--dry-run", program="lld-workflow")
        run_in_container("2", "--offline", program="lld-workflow")
        assert any(path.is_socket() for path in run.iterdir())
    assert running.wait(60).code == 0
    assert harness.document(1).exists()


def test_two_containers_share_a_backlog_without_repeating_work(harness: RunHarness) -> None:
    harness.issues(*range(1, 7))
    server = harness.server("--latency", "0.2,0.3")
    first = harness.start("--all", "--parallel", "2", before=CONTAINER)
    second = harness.start("--all", "--parallel", "2", before=CONTAINER)
    assert first.wait(100).code == 0 and second.wait(100).code == 0
    assert all(harness.document(number).exists() for number in range(1, 7))
    assert not server.repeated_prompts()


@pytest.mark.slow
def test_a_live_run_is_shown_as_running_when_home_is_an_overlay(harness: RunHarness, tmp_path: Path) -> None:
    harness.issues(1)
    harness.server("--latency", "4,4")
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower" / "config.toml").write_text("retries = 1\n")
    (tmp_path / "lower").chmod(0o700)
    (tmp_path / "upper").chmod(0o700)
    harness.home.mkdir(mode=0o700)
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    script = (
        f"mount -t overlay overlay -o {options} {harness.home} || exit 77\n"
        "lld-workflow 1 & run=$!\n"
        "for _ in $(seq 300); do agentos runs | grep -q running && break; sleep 0.1; done\n"
        "agentos runs; wait $run\n"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=harness.environment(),
        cwd=harness.project,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("the kernel does not allow an overlay mount here")
    assert done.returncode == 0 and "running" in done.stdout and "killed" not in done.stdout
