"""Keys that several runs, providers and people share: terminals, `agentos keys`, budgets, roles."""

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .keyrings import credentials, keys, line, table
from .stage import KEYS, Stage, until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Two terminals.


def test_two_terminals_on_two_projects_keep_to_the_limits_of_their_keys_in_sum(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    other = stage.root / "other"
    (other / "issues").mkdir(parents=True)
    for number in (50, 51, 52, 53):
        path = stage.issue(number)
        path.rename(other / "issues" / path.name)
    witness = stage.server("--latency", "0.2,0.2", "--rpm", "8", "--concurrency", "1", keys=KEYS[:2])
    credentials(stage, witness.url, table(1, "rpm = 8"), table(2, "rpm = 8"))
    runs = [stage.start("--all", "--parallel", 2, "--repo", project) for project in (stage.project, other)]
    for done in [running.end() for running in runs]:
        assert done.code == 0, done.out
    assert all(stage.document(number).exists() for number in range(40, 44))
    assert len(list((other / "docs/lld/active").glob("LLD-*.md"))) == 4
    call_log = witness.ledger()
    assert {call["status"] for call in call_log["calls"]} == {200} and len(call_log["calls"]) == 16
    assert call_log["max_concurrent"] == {"key-1": 1, "key-2": 1} and call_log["max_concurrent_all"] == 2
    shown = keys(stage, "list")
    for name in ("key-1", "key-2"):
        assert "8 of 8 requests/60s" in line(shown, name)


def test_a_key_that_a_killed_run_was_using_is_free_for_the_other_at_once(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server(keys=KEYS[:1], fault={"kind": "hang", "nth": 1})
    credentials(stage, witness.url, table(1, "rpm = 100"))
    first = stage.start(40)
    until(lambda: len(witness.calls()) == 1)
    second = stage.start(41)
    second.says("[COORDINATOR]")
    for mark in [*first.processes()]:
        os.kill(mark.pid, 9)
    first.process.kill()
    assert second.end().code == 0
    assert stage.document(41).exists() and {call["key"] for call in witness.answered()} == {"key-1"}


_STOPPED = """
import os, signal, sys
from pathlib import Path
from agentos.storage.peer_log import FilePeerLog
log = FilePeerLog(Path(sys.argv[1]), "stopped")
with log.lock_and_read():
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_run_stopped_in_its_turn_keeps_keys_from_the_others_and_nothing_else(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server()
    stage.home.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", _STOPPED, stage.home / "quota"]) as stopped:
        try:
            until(lambda: "T (stopped)" in Path(f"/proc/{stopped.pid}/status").read_text())
            running = stage.start("--all", "--parallel", 2)
            running.says("N1_design", 30)
            began = time.monotonic()
            running.signal(signal.SIGINT)
            done = running.end()
            assert done.code == 130 and time.monotonic() - began < 5 and not witness.calls()
            refused = stage.run("keys", "rest", "key-1", "--for", "60", program="agentos")
            assert refused.code == 3 and "try again" in refused.err and len(refused.err.splitlines()) == 1
            running = stage.start("--all", "--parallel", 2)
            running.says("N1_design", 30)
            stopped.send_signal(signal.SIGCONT)
            assert running.end().code == 0 and len(witness.answered()) == 4
        finally:
            stopped.kill()


# `agentos keys`.


def test_a_key_that_is_put_to_rest_is_not_used_by_a_run_under_way(stage: Stage) -> None:
    stage.issues(*range(40, 46))
    witness = stage.server("--latency", "0.1,0.1", keys=KEYS[:2])
    credentials(stage, witness.url, table(1, "rpm = 100"), table(2, "rpm = 100"))
    with witness.holding():
        running = stage.start("--all", "--parallel", 2)
        until(lambda: {event["key"] for event in stage.events("LeaseGranted")} == {"key-1", "key-2"})
        rested = keys(stage, "rest", "key-1", "--for", "10m")
    assert rested.code == 0 and "key-1 rests for 10m" in rested.out
    done = running.end(60)
    assert done.code == 0, done.out
    first, later = witness.calls()[:2], witness.calls()[2:]
    assert {call["key"] for call in first} == {"key-1", "key-2"} and len(later) == 10
    assert {call["key"] for call in later} == {"key-2"}
    shown = keys(stage)
    assert "rate limited, until " in line(shown, "key-1") and "put to rest by hand" in line(shown, "key-1")
    assert "available" in line(shown, "key-2")


def test_a_person_adds_a_key_and_sees_it_without_seeing_it(stage: Stage) -> None:
    assert "agentos keys add" in keys(stage).out
    added = keys(stage, "add", typed=f"{KEYS[0]}\n")
    path = stage.home / "credentials.toml"
    assert added.code == 0 and str(path) in added.out and mode(path) == 0o600
    assert keys(stage, "add", "--provider", "anthropic", "--name", "work", typed=KEYS[1]).code == 0
    shown = keys(stage, "list")
    assert "available" in line(shown, "gemini-1") and " anthropic " in line(shown, "work")
    assert mode(path) == 0o600 and mode(stage.home) == 0o700


def test_a_key_is_added_beside_one_that_a_variable_holds(stage: Stage) -> None:
    credentials(stage, "http://127.0.0.1:9", 'name = "work"\nkey_env = "WORK_KEY"')
    added = keys(stage, "add", "--name", "spare", typed=KEYS[1], WORK_KEY=KEYS[0])
    assert added.code == 0, added.err
    assert [line.split()[0] for line in keys(stage, WORK_KEY=KEYS[0]).lines] == ["work", "spare"]


def test_what_a_person_types_into_a_terminal_is_not_shown(stage: Stage) -> None:
    terminal = stage.terminal("keys", "add", program="agentos")
    terminal.says("Key")
    os.write(terminal.keyboard, f"{KEYS[0]}\n".encode())
    done = terminal.end()
    assert done.code == 0 and KEYS[0] not in done.out
    assert KEYS[0] in (stage.home / "credentials.toml").read_text()


@pytest.mark.parametrize(
    ("words", "typed", "says"),
    [
        (("add",), "", "empty"),
        (("add",), "two words\n", "spaces"),
        (("add",), "sch\u00f6n\n", "signs in it that no key has"),
        (("add", "--name", "key-1"), "another\n", "there already"),
        (("add", "--name", "spare"), f"{KEYS[0]}\n", "this key is there already, as 'key-1'"),
        (("add", "--name", "bad name!"), "another\n", "'bad name!' cannot be its name: a name is up to 32"),
        (("add", "--name", ""), "another\n", "'' cannot be its name"),
        (("rest", "nobody"), "", "no key is called 'nobody'; there are: key-1"),
        (("disable", "nobody"), "", "no key is called"),
        (("check", "nobody"), "", "no key is called"),
        (("rest", "key-1", "--for", "soon"), "", "--for"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    stage: Stage, words: tuple[str, ...], typed: str, says: str
) -> None:
    path = credentials(stage, "http://127.0.0.1:9", table(1))
    before = path.read_bytes()
    done = keys(stage, *words, typed=typed)
    assert done.code in (2, 5) and says in done.err, done.err
    assert path.read_bytes() == before and mode(path) == 0o600


def test_a_disabled_key_is_left_alone_until_it_is_enabled_and_the_file_stays_a_persons(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server(keys=KEYS[:2])
    path = credentials(stage, witness.url, f"# the one of the team\n{table(1)}", table(2))
    assert keys(stage, "disable", "key-1").code == 0
    assert "disabled" in line(keys(stage), "key-1") and mode(path) == 0o600
    assert "# the one of the team" in path.read_text()
    assert stage.run(40).code == 0
    assert {call["key"] for call in witness.calls()} == {"key-2"}
    assert keys(stage, "enable", "key-1").code == 0
    assert "disabled" not in keys(stage).out
    assert stage.run(41).code == 0
    assert {call["key"] for call in witness.calls()} == {"key-1", "key-2"}


def test_a_key_that_is_disabled_during_a_run_is_not_used_any_more(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    witness = stage.server("--latency", "0.1,0.1", keys=KEYS[:2])
    credentials(stage, witness.url, table(1, "rpm = 100"), table(2, "rpm = 100"))
    with witness.holding():
        running = stage.start("--all", "--parallel", 2)
        until(lambda: {event["key"] for event in stage.events("LeaseGranted")} == {"key-1", "key-2"})
        assert keys(stage, "disable", "key-1").code == 0
        running.says("The credentials were changed (disabled: key-1).")
    done = running.end()
    assert done.code == 0, done.out
    later = [call["key"] for call in witness.calls()][2:]
    assert later == ["key-2"] * 6


def test_a_key_of_the_environment_cannot_be_disabled_and_says_what_to_do(stage: Stage) -> None:
    done = keys(stage, "disable", "key-1", GEMINI_API_KEY_1=KEYS[0])
    assert done.code == 2 and "unset its variable" in done.err


def test_each_key_is_checked_with_one_call(stage: Stage) -> None:
    witness = stage.server(keys=KEYS[:2])
    credentials(stage, witness.url, table(1), table(2), table(3))
    done = keys(stage, "check")
    assert done.code == 0
    assert re.search(r"key-1: answers\nkey-2: answers\nkey-3: .*API_KEY_INVALID", done.out)
    assert [call["key"] for call in witness.answered()].count("key-1") == 1
    assert keys(stage, "check", "key-3").code == 4
    assert keys(stage, "check", "key-2").code == 0


def test_the_last_refusal_and_its_end_are_shown(stage: Stage) -> None:
    stage.issue(40)
    fault = {"kind": "429-minute", "key": "key-1", "retry_delay": 600, "times": None}
    witness = stage.server(keys=KEYS[:2], fault=fault)
    credentials(stage, witness.url, table(1), table(2, 'bucket = "team"'))
    assert stage.run("--all").code == 0
    shown = keys(stage)
    assert re.search(r"rate limited, until \d\d:\d\d:\d\d \(in \d+m", line(shown, "key-1"))
    assert "last refusal: 429 Generate" in line(shown, "key-1")
    assert "bucket team" in line(shown, "key-2")


def test_a_key_that_a_killed_run_was_using_is_not_shown_as_in_use(stage: Stage) -> None:
    stage.issue(40)
    witness = stage.server(keys=KEYS[:1], fault={"kind": "hang", "times": None})
    credentials(stage, witness.url, table(1))
    running = stage.start(40)
    until(lambda: len(witness.calls()) == 1)
    assert "reserved" in line(keys(stage), "key-1")
    for mark in running.processes():
        os.kill(mark.pid, 9)
    running.process.kill()
    running.process.wait()
    assert "available" in line(keys(stage), "key-1")


# Limits.


def test_a_wait_for_a_limit_is_said_and_is_no_longer_than_max_wait(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server("--rpm", "2", keys=KEYS[:1])
    credentials(stage, witness.url, table(1, "rpm = 2"))
    stopped = stage.run("--all", "--max-wait", "5s")
    assert stopped.code == 75 and stage.document(40).exists(), stopped.out
    assert re.search(r"Stopped: no key may be used within --max-wait; the first is key-1, at \d", stopped.out)
    waiting = stage.start("--all")
    waiting.says("[COORDINATOR] Every key is at its limit. The next call goes at ")
    waiting.signal(signal.SIGINT)
    assert waiting.end().code == 130 and len(witness.calls()) == 2


# Money.


def test_a_run_stops_before_its_budget_is_passed_and_goes_on_with_a_larger_one(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    witness = stage.server(keys=KEYS[:1])
    none = stage.run("--all", "--budget", "0.0001")
    assert none.code == 75 and "Stopped: --budget 0.0001 is too little for a first call" in none.out
    assert none.lines[-1].startswith("[COORDINATOR] Everything is saved. Go on, with more to spend, with: ")
    done = stage.run("--all", "--budget", "0.0175")
    assert done.code == 75, done.out
    assert "--budget 0.0175" in done.out and "FAILED" not in done.out
    assert 1 <= len(witness.answered()) < 6 and "lld_workflow_42.db" in stage.databases()
    again = stage.run("--all", "--budget", "5")
    assert again.code == 0, again.out
    assert all(stage.document(number).exists() for number in (40, 41, 42))
    assert len(witness.answered()) == 6 and not witness.asked_twice()


def test_a_budget_needs_prices_and_says_how_to_give_them(stage: Stage) -> None:
    stage.issue(40)
    witness = stage.server(keys=KEYS[:1])
    settings = stage.project / "agentos.toml"
    settings.write_text('drafter = "gemini/homemade"\n')
    done = stage.run("--all", "--budget", "5")
    assert done.code == 3 and '[prices."homemade"]' in done.err
    settings.write_text('drafter = "gemini/homemade"\n[prices."homemade"]\ninput = 1\noutput = 2\n')
    assert stage.run("--all", "--budget", "5").code == 0
    assert len(witness.answered()) == 2


# Several providers.


def three_providers(stage: Stage, url: str) -> None:
    vendors = enumerate(("anthropic", "openai", "gemini"))
    credentials(stage, url, *(f'provider = "{vendor}"\nkey = "{KEYS[n]}"' for n, vendor in vendors))


def test_three_providers_play_the_roles_they_are_given(stage: Stage) -> None:
    stage.issues(40, 41, quality="weak")
    witness = stage.server(keys=KEYS[:3])
    three_providers(stage, witness.url)
    (stage.project / "agentos.toml").write_text(
        'drafter = "claude-sonnet-4-5"\nreviewer = ["openai/gpt-5", "gemini-2.5-pro"]\n'
    )
    done = stage.run("--all", "--parallel", 2)
    assert done.code == 0, done.out
    played = {(call["role"], call["key"], call["model"]) for call in witness.calls()}
    assert played == {("draft", "key-1", "claude-sonnet-4-5"), ("review", "key-2", "gpt-5")}
    assert {call["status"] for call in witness.calls()} == {200}
    assert {"anthropic-1", "openai-1"} == {event["key"] for event in stage.events("LeaseGranted")}
    assert all(event["cost"] > 0 for event in stage.events("CallCompleted"))


def test_a_fallback_reviews_when_the_preferred_provider_has_no_usable_key(stage: Stage) -> None:
    stage.issues(40, 41)
    witness = stage.server(keys=KEYS[:3], fault={"kind": "429-insufficient", "key": "key-2", "times": None})
    three_providers(stage, witness.url)
    (stage.project / "agentos.toml").write_text(
        'drafter = "claude-sonnet-4-5"\nreviewer = ["openai/gpt-5", "gemini-2.5-pro"]\n'
    )
    done = stage.run("--all")
    assert done.code == 0, done.out
    reviews = [(call["key"], call["status"]) for call in witness.calls() if call["role"] == "review"]
    assert reviews == [("key-2", 429), ("key-3", 200), ("key-3", 200)]


def test_a_role_without_a_key_is_told_before_anything_runs(stage: Stage) -> None:
    stage.issue(40)
    witness = stage.server(keys=KEYS[:1])
    (stage.project / "agentos.toml").write_text('reviewer = "claude-sonnet-4-5"\n')
    done = stage.run("--all")
    assert done.code == 4 and "no API key for anthropic" in done.err
    assert witness.calls() == []
