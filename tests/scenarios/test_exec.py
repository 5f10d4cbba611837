"""`agentos exec`: any program, once per item, with real processes, signals and terminals."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from .harness import CompletedCommand, RunHarness, RunningCommand, wait_until

SCRIPT = """#!/bin/sh
# usage: agent ITEM; executes the text of the item
echo "working on $1"
echo "$1" >> done.txt
. "./$1"
"""


@pytest.fixture
def project(harness: RunHarness) -> Path:
    agent = harness.project / "agent"
    agent.write_text(SCRIPT)
    agent.chmod(0o755)
    (harness.project / "work").mkdir()
    return harness.project


def work(project: Path, **scripts: str) -> None:
    for name, script in scripts.items():
        (project / "work" / f"{name}.sh").write_text(script)


def exec_(
    harness: RunHarness, *args: object, command: tuple[str, ...] = ("./agent", "{item}")
) -> CompletedCommand:
    return harness.run("exec", "--items", "work/*.sh", *args, "--", *command, program="agentos")


def calls(project: Path) -> list[str]:
    path = project / "done.txt"
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
def test_items_that_changed_are_done_again_on_request(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 0", b="exit 0", c="exit 0")
    assert exec_(harness).code == 0
    assert "every item is done" in exec_(harness, "--rerun-changed").out
    work(project, b="exit 0 # changed")
    assert "every item is done" in exec_(harness).out
    assert "b  changed since it was done" in exec_(harness, "--rerun-changed", "--dry-run").out
    assert exec_(harness, "--rerun-changed").code == 0
    assert sorted(calls(project)) == ["work/a.sh", "work/b.sh", "work/b.sh", "work/c.sh"]
    assert "every item is done" in exec_(harness, "--rerun-changed").out


def test_a_program_that_edits_its_own_item_is_not_run_for_ever(harness: RunHarness, project: Path) -> None:
    work(project, a="echo '# edited' >> work/a.sh")
    assert exec_(harness).code == 0
    assert "every item is done" in exec_(harness, "--rerun-changed").out


def test_output_is_shown_in_the_order_of_the_items_on_request(harness: RunHarness, project: Path) -> None:
    """The first item ends last: it waits until the others are done."""
    work(
        project,
        a="while ! [ -e b.done ] || ! [ -e c.done ]; do sleep 0.05; done; echo A",
        b="echo B; touch b.done",
        c="echo C; touch c.done",
    )
    done = exec_(harness, "--parallel", "3", "--keep-order")
    assert done.code == 0
    lines = [line for line in done.lines if line.startswith(("[a]", "[b]", "[c]"))]
    assert [line[1] for line in lines] == sorted(line[1] for line in lines)
    assert "[b] B" in lines and "[c] C" in lines


def test_columns_of_a_table_reach_the_command_and_the_environment(harness: RunHarness, project: Path) -> None:
    (project / "tasks.csv").write_text("id,title,due date\n7,Dark mode,May\n8,Light mode,June\n")
    words = ("sh", "-c", 'echo "$1 by $AGENTOS_COLUMN_DUE_DATE as $AGENTOS_ITEM"', "sh", "{title}")
    done = harness.run("exec", "--items-from", "tasks.csv", "--", *words, program="agentos")
    assert done.code == 0, done.err
    assert "Dark mode by May as 7" in done.lines_of("7") and "Light mode by June as 8" in done.lines_of("8")
    (project / "tasks.csv").write_text("id,title,due date\n7,Dark mode,May\n8,Light mode,July\n")
    again = harness.run(
        "exec", "--items-from", "tasks.csv", "--rerun-changed", "--", *words, program="agentos"
    )
    assert again.lines_of("7") == [] and "Light mode by July as 8" in again.lines_of("8")


def test_exit_codes_decide_and_the_same_command_resumes(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 0", b="echo oops >&2; exit 3", c="exit 0")
    first = exec_(harness, "--parallel", "3")
    assert first.code == 1
    assert "working on work/a.sh" in first.lines_of("a") and "oops" in first.lines_of("b")
    assert "FAILED: exit status 3" in first.lines_of("b")
    lines = first.lines_of("COORDINATOR")
    assert "  Items: 2 completed, 1 failed (b)" in lines and not any("Verdicts" in line for line in lines)
    assert lines[-1].endswith("--parallel 3 --failed -- ./agent '{item}'")
    work(project, b="exit 0")
    again = exec_(harness)
    assert again.code == 0 and "2 items are already done; redo them with --fresh" in again.lines_of(
        "COORDINATOR"
    )
    assert sorted(calls(project)) == ["work/a.sh", "work/b.sh", "work/b.sh", "work/c.sh"]
    assert "every item is done" in exec_(harness).out
    assert exec_(harness, "--fresh", "--limit", "1").code == 0 and len(calls(project)) == 5
    assert exec_(harness, command=("true", "{item}")).code == 0


def test_an_interrupted_fresh_run_leaves_what_it_did_not_come_to_pending(
    harness: RunHarness, project: Path
) -> None:
    work(project, a="exit 0", b="exit 0")
    assert exec_(harness).code == 0
    work(project, a="sleep 60")
    running = harness.start(
        "exec", "work/a.sh", "work/b.sh", "--fresh", "--", "./agent", "{item}", program="agentos"
    )
    wait_until(lambda: calls(project).count("work/a.sh") == 2)
    running.signal(signal.SIGINT)
    last = running.wait().lines[-1]
    assert last.endswith("Resume with: agentos exec work/a.sh work/b.sh -- ./agent '{item}'")
    work(project, a="exit 0")
    assert exec_(harness).code == 0 and calls(project)[3:] == ["work/a.sh", "work/b.sh"]


def test_failed_selects_failed_items_and_a_dry_run_runs_none(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 1", b="exit 0")
    exec_(harness)
    work(project, c="exit 0")
    dry = exec_(harness, "--failed", "--dry-run")
    assert dry.lines[:2] == [
        "[COORDINATOR] Dry run mode - would process 1 item:",
        "  - a  failed before: ./agent work/a.sh",
    ]
    assert exec_(harness, "--failed").code == 1 and calls(project).count("work/c.sh") == 0


@pytest.mark.slow
def test_exit_code_75_is_retried_and_others_on_request(harness: RunHarness, project: Path) -> None:
    once = 'n=$(grep -c "$1" done.txt); [ "$n" -gt 1 ] || exit '
    work(project, a=once + "75", b=once + "9")
    assert exec_(harness, "--parallel", "2").code == 1
    assert sorted(calls(project)) == ["work/a.sh", "work/a.sh", "work/b.sh"]
    work(project, c=once + "9")
    assert exec_(harness, "--retry-on", "9").code == 0


def test_a_program_that_times_out_or_is_killed_fails_alone(harness: RunHarness, project: Path) -> None:
    work(project, a="sleep 60 & sleep 60", b="kill -9 $$", c="exit 0")
    done = exec_(harness, "--parallel", "3", "--timeout", "1s", "--retries", "0", "--joblog", "jobs.tsv")
    assert done.code == 1 and "FAILED: ran out of time (--timeout)" in done.lines_of("a")
    assert "FAILED: killed by SIGKILL" in done.lines_of("b")
    rows = [line.split("\t") for line in (project / "jobs.tsv").read_text().splitlines()]
    assert rows[0][:4] == ["Seq", "Host", "Starttime", "JobRuntime"] and rows[0][-1] == "Command"
    ended = {row[0]: (row[6], row[7], row[8]) for row in rows[1:]}
    assert ended["2"] == ("0", "9", "./agent work/b.sh") and ended["3"] == ("0", "0", "./agent work/c.sh")
    assert ended["1"][1] == "9" and (harness.home / "logs/parallel/latest/joblog.tsv").exists()


def start(harness: RunHarness, *args: object) -> RunningCommand:
    return harness.start("exec", "--items", "work/*.sh", *args, "--", "./agent", "{item}", program="agentos")


def test_ctrl_c_terminates_programs_and_the_rest_runs_next_time(harness: RunHarness, project: Path) -> None:
    polite = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    work(project, a=polite, b="echo ready; trap '' TERM; while :; do sleep 0.05; done", c="exit 0")
    run = start(harness, "--parallel", "2")
    run.wait_for("[b] ready")
    run.wait_for("[a] ready")
    processes = run.processes()
    run.signal(signal.SIGINT)
    done = run.wait(10)
    assert done.code == 130 and "bye" in done.lines_of("a")
    assert done.lines_of("COORDINATOR")[-1].startswith("Everything is saved. Resume with: agentos exec")
    wait_until(lambda: not any(process.alive for process in processes), 3)
    work(project, b="exit 0")
    assert exec_(harness).code == 0 and calls(project).count("work/a.sh") == 1


def test_nothing_outlives_the_coordinator(harness: RunHarness, project: Path) -> None:
    work(project, a="sleep 300 & echo ready; sleep 300", b="sleep 300 & echo ready; sleep 300")
    run = start(harness, "--parallel", "2")
    run.wait_for("[a] ready")
    run.wait_for("[b] ready")
    processes = run.processes()
    assert len(processes) >= 7
    run.signal(signal.SIGKILL)
    wait_until(lambda: not any(process.alive for process in processes), 3)
    shown = harness.run("status", program="agentos").out
    assert re.search(r"^  a +killed +1 attempt ", shown, re.MULTILINE), shown


def test_two_terminals_share_the_items_without_repeating_any(harness: RunHarness, project: Path) -> None:
    work(project, **{f"n{number}": "sleep 0.3" for number in range(8)})
    first, second = start(harness, "--parallel", "2"), start(harness, "--parallel", "2")
    assert first.wait().code == 0 and second.wait().code == 0
    assert exec_(harness).code == 0
    assert sorted(calls(project)) == [f"work/n{number}.sh" for number in range(8)]


def test_secrets_stay_out_of_the_program_unless_they_are_passed(harness: RunHarness, project: Path) -> None:
    work(project, a='echo "key=$GEMINI_API_KEY_1 token=$GITHUB_TOKEN mine=$MINE id=$AGENTOS_ITEM_ID"')
    secret = {"GEMINI_API_KEY_1": "canary-key-of-exec", "GITHUB_TOKEN": "canary-token-of-exec"}
    command = ("exec", "work/a.sh", "--fresh")
    plain = harness.run(*command, "--", "./agent", "{item}", program="agentos", **secret)
    assert "key= token= mine= id=a" in plain.lines_of("a")
    more = ("--env", "GITHUB_TOKEN", "--env", "MINE=7", "--", "./agent", "{item}")
    passed = harness.run(*command, *more, program="agentos", **secret)
    assert "key= token=[secret] mine=7 id=a" in passed.lines_of("a")
    written = [path.read_bytes() for path in harness.home.rglob("*") if path.is_file()]
    assert written and not any(b"canary" in text for text in written)


def test_values_that_look_like_credentials_are_withheld_and_named_once(
    harness: RunHarness, project: Path
) -> None:
    work(
        project,
        **dict.fromkeys("ab", 'echo "url=$DATABASE_URL file=$PGPASSFILE proxy=$MY_PROXY plain=$PLAIN"'),
    )
    found = {
        "DATABASE_URL": "postgres://app:canary-hunter2@db/app",
        "PGPASSFILE": "/home/me/.pgpass",
        "MY_PROXY": "http://proxy:3128",
        "PLAIN": "seen",
    }
    command = ("exec", "work/a.sh", "work/b.sh", "--fresh")
    done = harness.run(*command, "--", "./agent", "{item}", program="agentos", **found)
    assert "url= file= proxy=http://proxy:3128 plain=seen" in done.lines_of("a")
    assert done.out.count("Not passed to the programs") == 1
    assert (
        "Not passed to the programs, as they may hold or select credentials: DATABASE_URL, PGPASSFILE. "
        "To pass one: --env DATABASE_URL"
    ) in done.lines_of("COORDINATOR")
    passed = harness.run(
        *command,
        "--env",
        "DATABASE_URL",
        "--env",
        "PGPASSFILE",
        "--",
        "./agent",
        "{item}",
        program="agentos",
        **found,
    )
    assert "Not passed" not in passed.out and "canary" not in passed.out
    assert "url=[secret] file=[secret] proxy=http://proxy:3128 plain=seen" in passed.lines_of("a")


def test_items_come_from_lists_arguments_and_patterns(harness: RunHarness, project: Path) -> None:
    (project / "list").write_text("\ufeffone\n\ntwo words\n", encoding="utf-8")
    done = harness.run("exec", "--items-from", "list", "three", "--", "echo", "<{item}>", program="agentos")
    assert done.code == 0, done.err
    assert "<three>" in done.lines_of("three") and "<two words>" in done.lines_of("two-words")
    assert "<one>" in done.lines_of("one")
    strange = project / "$(touch pwned) `x`.sh"
    strange.write_text("")
    done = harness.run("exec", "$(touch*", "--", "ls", "{item}", program="agentos")
    assert done.code == 0 and not (project / "pwned").exists()


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (["--items", "*.none", "--", "true"], 5, "nothing matches '*.none'"),
        (["--items", "agent"], 2, "expected -- and then the program"),
        (["--items", "agent", "--"], 2, "no command after --"),
        (["--", "true"], 2, "no items"),
        (["agent", "--", "no-such-program"], 3, "is not on the PATH"),
        (
            ["agent", "--", "ls -l {item}"],
            2,
            "without the quotes, it is a program and its arguments: -- ls -l {item}",
        ),
        (["agent", "--", "./agent {item}"], 2, "arguments: -- ./agent {item}"),
        (["agent", "--", "ls -l"], 2, "arguments: -- ls -l"),
        (["agent", "--", "./work"], 3, "does not exist or is not executable"),
        (["agent", "--retry-on", "x", "--", "true"], 2, "invalid --retry-on 'x': expected exit codes"),
        (["agent", "--env", "NOT_SET_ANYWHERE", "--", "true"], 2, "is not set"),
        (["agent", "--joblog", "no/such/folder/x", "--", "true"], 3, "cannot write to"),
    ],
)
def test_invalid_arguments_are_one_clear_error(
    harness: RunHarness, project: Path, args: list[str], code: int, expected: str
) -> None:
    done = harness.run("exec", *args, program="agentos")
    assert (done.code, expected in done.err) == (code, True), done
    assert "Traceback" not in done.err


def test_a_refused_run_leaves_no_records(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 0")
    assert exec_(harness).code == 0
    for path in ("/proc/x", "/dev/full"):
        assert exec_(harness, "--fresh", "--joblog", path).code == 3
    assert len(harness.runs()) == 1 and len(calls(project)) == 1
    assert "Every item is done" in harness.run("status", program="agentos").out


def test_the_last_line_says_what_to_type_when_nothing_runs(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 0", b="exit 0")
    assert exec_(harness, "--limit", 1).code == 0
    none = exec_(harness, "--failed")
    assert none.code == 0 and none.lines[-1].endswith("To run every pending item, leave out --failed")
    work(project, b="touch begun; sleep 60")
    running = harness.start("exec", "--items", "work/*.sh", "--", "./agent", "{item}", program="agentos")
    wait_until((project / "begun").exists)
    held = exec_(harness)
    assert held.code == 0 and held.lines[0].startswith("[COORDINATOR] b is being worked on by")
    assert held.lines[-1] == "[COORDINATOR] List runs: agentos runs"
    running.signal(signal.SIGINT)
    assert running.wait().code == 130


def test_exec_can_print_json_events(harness: RunHarness, project: Path) -> None:
    work(project, a="exit 4")
    done = exec_(harness, "--json")
    found = [json.loads(line) for line in done.lines]
    ended = next(event for event in found if event["type"] == "program_ended")
    assert ended["status"] == 4 and ended["item"] == "a"
    assert "[a] FAILED: exit status 4" in done.err


AGENT = """
import json, os, sys, urllib.request
body = json.dumps({"contents": [{"role": "user", "parts": [{"text": sys.argv[1]}]}]}).encode()
url = os.environ["GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-pro:generateContent"
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20))
print("tokens:", answer["usageMetadata"]["totalTokenCount"])
"""


def test_an_agent_unaware_of_agentos_shares_the_keys(harness: RunHarness, project: Path) -> None:
    server = harness.server()
    (project / "agent.py").write_text(AGENT)
    done = harness.run("exec", "a", "b", "-j", "2", "--", "python3", "agent.py", "{item}", program="agentos")
    assert done.code == 0, done.out + done.err
    assert len(server.answered()) == 2
    assert sum("calls" in line and "2 calls" in line for line in done.lines_of("COORDINATOR")) == 1
    rows = {row["item"]: row["usage"]["calls"] for row in harness.summary()["items"]}
    assert rows == {"a": 1, "b": 1}
    assert "canary" not in done.out + done.err
    without = harness.run(
        "exec", "a", "--fresh", "--no-gateway", "--", "python3", "agent.py", "{item}", program="agentos"
    )
    assert without.code == 1 and "KeyError: 'GEMINI_BASE_URL'" in without.out


def test_a_run_of_piped_items_names_a_command_that_repeats_it(harness: RunHarness) -> None:
    (harness.project / "many").write_text("one\ntwo words\n")
    program = "test -e ready && echo did {item}"
    piped = f"agentos exec --items-from - --retries 0 -- sh -c '{program}' < many"
    first = subprocess.run(
        ["bash", "-c", piped], cwd=harness.project, env=harness.environment(), capture_output=True, text=True
    )
    assert first.returncode == 1, first.stdout + first.stderr
    retry = first.stdout.splitlines()[-1].partition(": ")[2]
    assert "--items-from -" not in retry and "/items --retries 0 --failed -- sh" in retry
    (harness.project / "ready").touch()
    again = subprocess.run(
        ["bash", "-c", retry], cwd=harness.project, env=harness.environment(), capture_output=True, text=True
    )
    assert again.returncode == 0 and "did two words" in again.stdout, again.stdout + again.stderr


def test_a_list_without_items_is_no_finished_run(harness: RunHarness) -> None:
    (harness.project / "none").write_text("\n")
    done = harness.run("exec", "--items-from", "none", "--", "true", program="agentos")
    assert done.code == 5 and "none names no item" in done.err
    piped = harness.run("exec", "--items-from", "-", "--", "true", program="agentos")
    assert piped.code == 5 and "standard input names no item" in piped.err


@pytest.mark.slow
def test_failed_is_about_the_last_run_of_the_same_command(harness: RunHarness) -> None:
    assert harness.run("exec", "a", "--", "false", program="agentos").code == 1
    other = harness.run("exec", "a", "--failed", "--", "true", program="agentos")
    line = "No selected item failed in the last run of this command. To run every pending item, leave out --failed"
    assert other.code == 0 and other.lines_of("COORDINATOR") == [line], other.out
