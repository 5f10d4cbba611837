"""The demo, and what it says to type next, by somebody whose shell does not know our commands."""

import subprocess

from .stage import PROGRAMS, Stage


def test_the_demo_runs_without_a_key_and_what_it_says_can_be_typed(stage: Stage) -> None:
    stranger = {"PATH": "/usr/bin:/bin", "HOME": str(stage.user), "TERM": "dumb"}
    done = subprocess.run(
        [PROGRAMS / "agentos", "demo"],
        cwd=stage.root,
        env=stranger,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "9 approved, 1 needs revision" in done.stdout
    assert len(list((stage.root / "agentos-demo/docs/lld/active").iterdir())) == 9
    assert "Read them: ls agentos-demo/docs/lld/active agentos-demo/docs/lld/needs-revision" in done.stdout

    _, _, next_steps = done.stdout.partition("issues next:\n")
    *looking, last = next_steps.splitlines()
    typed = "\n".join([*looking, f"{last} --dry-run"])
    after = subprocess.run(
        ["sh", "-ec", typed], cwd=stage.root, env=stranger, capture_output=True, text=True, timeout=60
    )
    assert after.returncode == 0, after.stderr
    assert "(lld) has ended" in after.stdout and "ISSUE-23  new" in after.stdout
