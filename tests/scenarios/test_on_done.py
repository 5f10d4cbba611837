"""The user's own command at the end of a run."""

import json
import signal

from .harness import RunHarness

FIGURES = 'echo "$AGENTOS_WORKFLOW: $AGENTOS_APPROVED/$AGENTOS_TOTAL, $AGENTOS_FAILED failed, $AGENTOS_EXIT_CODE" >> figures'


def test_the_command_gets_the_figures_of_the_run(harness: RunHarness) -> None:
    harness.issues(40, 41)
    harness.issue(42).write_text("no heading, so no spec")
    done = harness.run(
        "--all", "--parallel", "--offline", "--on-done", f'{FIGURES}; ls "$AGENTOS_RUN_FOLDER"'
    )
    assert done.code == 1 and "summary.json" in done.lines, done.out
    assert (harness.project / "figures").read_text() == "lld: 2/3, 1 failed, 1\n"


def test_it_is_run_after_an_interruption_too_and_its_failure_changes_nothing(harness: RunHarness) -> None:
    harness.issues(40)
    with harness.server().frozen():
        running = harness.start("--all", "--on-done", f"{FIGURES}; exit 7")
        running.wait_for("Executing: N1_design")
        running.signal(signal.SIGINT)
        done = running.wait()
    assert done.code == 130 and (harness.project / "figures").read_text() == "lld: 0/1, 0 failed, 130\n"
    assert done.lines[-1].startswith("[COORDINATOR] The command of --on-done exited with 7: echo")


def test_a_setting_is_used_from_the_users_file_and_from_no_untrusted_project(harness: RunHarness) -> None:
    (harness.project / "one").write_text("")
    (harness.project / "agentos.toml").write_text('on_done = "touch stolen"\n')
    harness.home.mkdir(mode=0o700)
    (harness.home / "config.toml").write_text('on_done = "touch mine; echo to people"\n')
    done = harness.run("exec", "one", "--json", "--", "true", program="agentos")
    assert done.code == 0 and (harness.project / "mine").exists(), done.err
    assert not (harness.project / "stolen").exists() and "is not trusted: on_done" in done.err
    assert all(json.loads(line) for line in done.lines) and "to people" in done.err
    again = harness.run("exec", "one", "--fresh", "--on-done", "", "--", "true", program="agentos")
    assert again.code == 0 and "to people" not in again.out


def test_the_title_of_the_terminal_shows_the_progress_and_is_restored(harness: RunHarness) -> None:
    harness.issues(40)
    terminal = harness.terminal("--all", "--offline")
    done = terminal.wait()
    assert done.code == 0
    assert b"\x1b[22;2t\x1b]2;0/1 lld - agentos\x1b\\" in terminal.written
    assert terminal.written.count(b"\x1b[23;2t") == 1 and b"\x1b]9;4" not in terminal.written
