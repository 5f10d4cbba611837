"""A cloned repository cannot affect anything but its own documents when a user runs `lld-workflow --all` in it."""

import pytest

from .harness import RunHarness


def test_an_untrusted_project_runs_without_restricted_settings(harness: RunHarness) -> None:
    harness.issues(42)
    (harness.project / "agentos.toml").write_text('github = "evil/repository"\nkeep_runs = 1\n')
    done = harness.run("--all", "--offline", "--dry-run")
    assert done.code == 0
    assert "this project is not trusted: github, keep_runs. To allow: agentos trust" in done.out
    assert "  - LLD-42" in done.out


@pytest.mark.parametrize("program", ["lld-workflow", "issue-workflow"])
def test_a_run_that_depends_on_untrusted_github_settings_exits_with_3(
    harness: RunHarness, program: str
) -> None:
    (harness.project / "issues").rmdir()
    (harness.project / "ideas" / "active").mkdir(parents=True, exist_ok=True)
    (harness.project / "agentos.toml").write_text('github = "evil/repository"\n')
    done = harness.run("--all", program=program)
    assert done.code == 3 and "type agentos trust" in done.err


def test_trust_shows_the_settings_and_requires_confirmation(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text("keep_runs = 7\n")
    untrusted = harness.run("trust", program="agentos")
    assert untrusted.code == 3 and "keep_runs = 7" in untrusted.out and "agentos trust --yes" in untrusted.err
    shown = harness.run("config", "show", "--origin", program="agentos")
    assert "held_back" in shown.out and "is held back" in shown.out
    given = harness.run("trust", "--yes", program="agentos")
    assert given.code == 0 and "trusted until its agentos.toml changes" in given.out
    listed = harness.run("trust", "--list", program="agentos")
    assert str(harness.project) in listed.out
    assert "is held back" not in harness.run("config", "show", "--origin", program="agentos").out
    assert harness.run("trust", "--revoke", program="agentos").code == 0
    assert harness.run("trust", "--list", program="agentos").out == ""
