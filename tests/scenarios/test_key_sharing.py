"""Keys shared by several runs, providers and people: terminals, `agentos keys`, budgets, roles."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentos.core.protocol.peer_notes import BucketLimitsLearned, QuotaSharingFound
from agentos.core.ratelimit.limits import Counting, Dimension, LearnedLimit, LearnedLimits
from agentos.platform_support import host_clock
from agentos.storage.credentials.reader import CredentialSource
from agentos.storage.home import Home
from agentos.storage.peer_log import FilePeerLog

from .harness import KEYS, RunHarness, wait_until
from .keyrings import credentials, keys, line, table


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Two terminals


@pytest.mark.slow
def test_runs_in_two_projects_respect_the_combined_limits_of_their_keys(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    other = harness.root / "other"
    (other / "issues").mkdir(parents=True)
    for number in (50, 51, 52, 53):
        path = harness.issue(number)
        path.rename(other / "issues" / path.name)
    server = harness.server("--latency", "0.2,0.2", "--rpm", "8", "--concurrency", "1", keys=KEYS[:2])
    credentials(harness, server.url, table(1, "rpm = 8"), table(2, "rpm = 8"))
    runs = [
        harness.start("--all", "--parallel", 2, "--repo", project) for project in (harness.project, other)
    ]
    for done in [running.wait() for running in runs]:
        assert done.code == 0, done.out
    assert all(harness.document(number).exists() for number in range(40, 44))
    assert len(list((other / "docs/lld/active").glob("LLD-*.md"))) == 4
    call_log = server.ledger()
    assert {call["status"] for call in call_log["calls"]} == {200} and len(call_log["calls"]) == 16
    assert call_log["max_concurrent"] == {"key-1": 1, "key-2": 1} and call_log["max_concurrent_all"] == 2
    shown = keys(harness, "list")
    for name in ("key-1", "key-2"):
        assert "8 of 8 requests/60s" in line(shown, name)


@pytest.mark.slow
def test_a_key_held_by_a_killed_run_is_free_for_others_at_once(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server(keys=KEYS[:1], fault={"kind": "hang", "nth": 1})
    credentials(harness, server.url, table(1, "rpm = 100"))
    first = harness.start(40)
    wait_until(lambda: len(server.calls()) == 1)
    second = harness.start(41)
    second.wait_for("[COORDINATOR]")
    for mark in [*first.processes()]:
        os.kill(mark.pid, 9)
    first.process.kill()
    assert second.wait().code == 0
    assert harness.document(41).exists() and {call["key"] for call in server.answered()} == {"key-1"}


_STOPPED = """
import os, signal, sys
from pathlib import Path
from agentos.storage.peer_log import FilePeerLog
log = FilePeerLog(Path(sys.argv[1]), "stopped")
with log.lock_and_read():
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_a_process_suspended_with_the_quota_lock_delays_calls_but_nothing_else(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server()
    harness.home.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", _STOPPED, harness.home / "quota"]) as stopped:
        try:
            wait_until(lambda: "T (stopped)" in Path(f"/proc/{stopped.pid}/status").read_text())
            running = harness.start("--all", "--parallel", 2)
            running.wait_for("N1_design", 30)
            began = time.monotonic()
            running.signal(signal.SIGINT)
            done = running.wait()
            assert done.code == 130 and time.monotonic() - began < 5 and not server.calls()
            refused = harness.run("keys", "cooldown", "key-1", "--for", "60", program="agentos")
            assert refused.code == 3 and "try again" in refused.err and len(refused.err.splitlines()) == 1
            running = harness.start("--all", "--parallel", 2)
            running.wait_for("N1_design", 30)
            stopped.send_signal(signal.SIGCONT)
            assert running.wait().code == 0 and len(server.answered()) == 4
        finally:
            stopped.kill()


# `agentos keys`


@pytest.mark.slow
def test_a_key_that_is_cooled_down_by_hand_is_not_used_by_a_running_run(harness: RunHarness) -> None:
    harness.issues(*range(40, 46))
    server = harness.server("--latency", "0.1,0.1", keys=KEYS[:2])
    credentials(harness, server.url, table(1, "rpm = 100"), table(2, "rpm = 100"))
    with server.frozen():
        running = harness.start("--all", "--parallel", 2)
        wait_until(lambda: {event["key"] for event in harness.events("lease_granted")} == {"key-1", "key-2"})
        cooled = keys(harness, "cooldown", "key-1", "--for", "10m")
    assert cooled.code == 0 and "No run on this machine uses key-1 for 10m" in cooled.out
    done = running.wait(60)
    assert done.code == 0, done.out
    first, later = server.calls()[:2], server.calls()[2:]
    assert {call["key"] for call in first} == {"key-1", "key-2"} and len(later) == 10
    assert {call["key"] for call in later} == {"key-2"}
    shown = keys(harness)
    assert "rate limited, until " in line(shown, "key-1") and "cooled down by hand" in line(shown, "key-1")
    assert "available" in line(shown, "key-2")


def test_what_was_learned_about_a_key_is_shown_and_forgotten(harness: RunHarness) -> None:
    credentials(harness, "http://127.0.0.1:9", table(1))
    (wanted,) = CredentialSource(harness.home / "credentials.toml", {}).read()
    limit = LearnedLimit(Dimension.REQUESTS, Counting.SLIDING, 10.0, 60.0)
    learned = LearnedLimits((limit,), concurrency=2, refusals=3, since=host_clock())
    with (
        contextlib.closing(FilePeerLog(Home(harness.home).open().quota, "earlier")) as log,
        log.lock_and_read(),
    ):
        log.append([BucketLimitsLearned("", wanted.quota, "pro", learned=learned)])
    shown = line(keys(harness), "key-1")
    assert (
        "learned for pro: 10 requests in any 60 s and 2 calls at a time (explains 3 refusals, since" in shown
    )
    assert "Forgot what was learned about key-1" in keys(harness, "forget", "key-1").out
    assert "learned" not in keys(harness).out
    assert "Nothing was learned about key-1" in keys(harness, "forget", "key-1").out


def test_keys_that_seem_to_share_a_quota_are_shown_until_forgotten(harness: RunHarness) -> None:
    credentials(harness, "http://127.0.0.1:9", table(1), table(2), table(3))
    quotas = [key.quota for key in CredentialSource(harness.home / "credentials.toml", {}).read()]
    with (
        contextlib.closing(FilePeerLog(Home(harness.home).open().quota, "earlier")) as log,
        log.lock_and_read(),
    ):
        log.append([QuotaSharingFound("", quotas[0], quotas[1], host_clock(), 4)])
    shown = keys(harness)
    for name, other in (("key-1", "key-2"), ("key-2", "key-1")):
        assert f"seems to share a quota with {other} (4 refusals show it, since " in line(shown, name)
    assert "share" not in line(shown, "key-3")
    (first, *_, last) = json.loads(keys(harness, "--json").out)["keys"]
    (shared,) = first["shares_quota_with"]
    assert (shared["key"], shared["refusals"]) == ("key-2", 4) and shared["since"] > 0
    assert last["shares_quota_with"] == []
    assert "Forgot what was learned about key-2" in keys(harness, "forget", "key-2").out
    assert "share" not in keys(harness).out
    assert "Nothing was learned about key-1" in keys(harness, "forget", "key-1").out


def test_an_added_key_is_listed_without_its_secret(harness: RunHarness) -> None:
    assert "agentos keys add" in keys(harness).out
    added = keys(harness, "add", "--provider", "gemini", "--no-check", typed=f"{KEYS[0]}\n")
    path = harness.home / "credentials.toml"
    assert added.code == 0 and str(path) in added.out and mode(path) == 0o600
    args = ("add", "--provider", "anthropic", "--name", "work", "--no-check")
    assert keys(harness, *args, typed=KEYS[1]).code == 0
    shown = keys(harness, "list")
    assert "available" in line(shown, "key-1") and " anthropic " in line(shown, "work")
    assert mode(path) == 0o600 and mode(harness.home) == 0o700


def test_a_key_can_be_added_to_one_from_a_variable(harness: RunHarness) -> None:
    credentials(harness, "http://127.0.0.1:9", 'name = "work"\nkey_env = "WORK_KEY"')
    args = ("add", "--provider", "gemini", "--name", "spare", "--no-check")
    added = keys(harness, *args, typed=KEYS[1], WORK_KEY=KEYS[0])
    assert added.code == 0, added.err
    assert [line.split()[0] for line in keys(harness, WORK_KEY=KEYS[0]).lines] == ["work", "spare"]


def test_a_key_typed_into_a_terminal_is_not_echoed(harness: RunHarness) -> None:
    terminal = harness.terminal("keys", "add", "--no-check", program="agentos")
    terminal.wait_for("Key")
    os.write(terminal.keyboard, f"{KEYS[0]}\n".encode())
    terminal.wait_for("Provider (gemini, anthropic, openai)")
    os.write(terminal.keyboard, b"openai\n")
    done = terminal.wait()
    assert done.code == 0 and KEYS[0] not in done.out
    assert f'provider = "openai"\nkey = "{KEYS[0]}"' in (harness.home / "credentials.toml").read_text()


@pytest.mark.parametrize(
    ("args", "typed", "expected"),
    [
        (("add",), "", "empty"),
        (("add",), "two words\n", "spaces"),
        (("add",), "sch\u00f6n\n", "invalid key: expected printable ASCII without spaces"),
        (("add", "--name", "key-1"), "another\n", "already exists"),
        (("add", "--name", "spare"), f"{KEYS[0]}\n", "this key already exists, as 'key-1'"),
        (("add", "--name", "bad name!"), "another\n", "invalid name 'bad name!': a name has up to 32"),
        (("add", "--name", ""), "another\n", "invalid name ''"),
        (("cooldown", "nobody"), "", "no key is named 'nobody'; the keys are: key-1"),
        (("disable", "nobody"), "", "no key is named"),
        (("check", "nobody"), "", "no key is named"),
        (("forget", "nobody"), "", "no key is named"),
        (("cooldown", "key-1", "--for", "soon"), "", "--for"),
        (("rest", "nobody"), "", "no key is named 'nobody'; the keys are: key-1"),  # the former name
    ],
)
def test_an_invalid_keys_command_says_why_and_changes_nothing(
    harness: RunHarness, args: tuple[str, ...], typed: str, expected: str
) -> None:
    path = credentials(harness, "http://127.0.0.1:9", table(1))
    before = path.read_bytes()
    done = keys(harness, *args, typed=typed)
    assert done.code in (2, 5) and expected in done.err, done.err
    assert path.read_bytes() == before and mode(path) == 0o600


@pytest.mark.slow
def test_a_disabled_key_is_not_used_until_enabled_and_the_file_keeps_its_comments(
    harness: RunHarness,
) -> None:
    harness.issues(40, 41)
    server = harness.server(keys=KEYS[:2])
    path = credentials(harness, server.url, f"# the team key\n{table(1)}", table(2))
    assert keys(harness, "disable", "key-1").code == 0
    assert "disabled" in line(keys(harness), "key-1") and mode(path) == 0o600
    assert "# the team key" in path.read_text()
    assert harness.run(40).code == 0
    assert {call["key"] for call in server.calls()} == {"key-2"}
    assert keys(harness, "enable", "key-1").code == 0
    assert "disabled" not in keys(harness).out
    assert harness.run(41).code == 0
    assert {call["key"] for call in server.calls()} == {"key-1", "key-2"}


@pytest.mark.slow
def test_a_key_disabled_during_a_run_is_no_longer_used(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server("--latency", "0.1,0.1", keys=KEYS[:2])
    credentials(harness, server.url, table(1, "rpm = 100"), table(2, "rpm = 100"))
    with server.frozen():
        running = harness.start("--all", "--parallel", 2)
        wait_until(lambda: {event["key"] for event in harness.events("lease_granted")} == {"key-1", "key-2"})
        assert keys(harness, "disable", "key-1").code == 0
        running.wait_for("Credentials changed (disabled: key-1).")
    done = running.wait()
    assert done.code == 0, done.out
    later = [call["key"] for call in server.calls()][2:]
    assert later == ["key-2"] * 6


def test_disabling_an_environment_key_is_refused_with_instructions(harness: RunHarness) -> None:
    done = keys(harness, "disable", "key-1", GEMINI_API_KEY_1=KEYS[0])
    assert done.code == 2 and "unset its variable" in done.err


@pytest.mark.slow
def test_each_key_is_checked_with_one_call(harness: RunHarness) -> None:
    server = harness.server(keys=KEYS[:2])
    credentials(harness, server.url, table(1), table(2), table(3))
    done = keys(harness, "check")
    assert done.code == 0
    assert re.search(r"key-1: works\nkey-2: works\nkey-3: .*API_KEY_INVALID", done.out)
    assert [call["key"] for call in server.answered()].count("key-1") == 1
    assert keys(harness, "check", "key-3").code == 4
    assert keys(harness, "check", "key-2").code == 0


def test_keys_shows_the_last_refusal_and_when_it_ends(harness: RunHarness) -> None:
    harness.issue(40)
    fault = {"kind": "429-minute", "key": "key-1", "retry_delay": 600, "times": None}
    server = harness.server(keys=KEYS[:2], fault=fault)
    credentials(harness, server.url, table(1), table(2, 'bucket = "team"'))
    assert harness.run("--all").code == 0
    shown = keys(harness)
    assert re.search(r"rate limited, until \d\d:\d\d:\d\d \(in \d+m", line(shown, "key-1"))
    assert "last refusal: 429 Generate" in line(shown, "key-1")
    assert "bucket team" in line(shown, "key-2")


def test_a_key_that_a_killed_run_was_using_is_not_shown_as_in_use(harness: RunHarness) -> None:
    harness.issue(40)
    server = harness.server(keys=KEYS[:1], fault={"kind": "hang", "times": None})
    credentials(harness, server.url, table(1))
    running = harness.start(40)
    wait_until(lambda: len(server.calls()) == 1)
    assert "reserved" in line(keys(harness), "key-1")
    for mark in running.processes():
        os.kill(mark.pid, 9)
    running.process.kill()
    running.process.wait()
    assert "available" in line(keys(harness), "key-1")


# Rate limits


@pytest.mark.slow
def test_waiting_for_a_limit_is_announced_and_bounded_by_max_wait(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server("--rpm", "2", keys=KEYS[:1])
    credentials(harness, server.url, table(1, "rpm = 2"))
    stopped = harness.run("--all", "--max-wait", "5s")
    assert stopped.code == 75 and harness.document(40).exists(), stopped.out
    assert re.search(r"Stopped: no key may be used within --max-wait; the first is key-1, at \d", stopped.out)
    waiting = harness.start("--all")
    waiting.wait_for("[COORDINATOR] All keys are at their limits. Next call at ")
    waiting.signal(signal.SIGINT)
    assert waiting.wait().code == 130 and len(server.calls()) == 2


# Budgets


@pytest.mark.slow
def test_a_run_stops_before_exceeding_its_budget_and_resumes_with_a_larger_one(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    server = harness.server(keys=KEYS[:1])
    none = harness.run("--all", "--budget", "0.0001")
    assert none.code == 75 and "Stopped: --budget 0.0001 is too low for the first call" in none.out
    assert none.lines[-1].startswith(
        "[COORDINATOR] Everything is saved. Resume, with a higher budget, with: "
    )
    done = harness.run("--all", "--budget", "0.0175")
    assert done.code == 75, done.out
    assert "--budget 0.0175" in done.out and "FAILED" not in done.out
    assert 1 <= len(server.answered()) < 6 and harness.databases()
    again = harness.run("--all", "--budget", "5")
    assert again.code == 0, again.out
    assert all(harness.document(number).exists() for number in (40, 41, 42))
    assert len(server.answered()) == 6 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_budget_needs_prices_and_says_how_to_give_them(harness: RunHarness) -> None:
    harness.issue(40)
    server = harness.server(keys=KEYS[:1])
    settings = harness.project / "agentos.toml"
    settings.write_text('drafter = "gemini/homemade"\n')
    done = harness.run("--all", "--budget", "5")
    assert done.code == 3 and '[prices."homemade"]' in done.err
    settings.write_text('drafter = "gemini/homemade"\n[prices."homemade"]\ninput = 1\noutput = 2\n')
    assert harness.run("--all", "--budget", "5", "--trust").code == 0
    assert len(server.answered()) == 2


# Several providers


def three_providers(harness: RunHarness, url: str) -> None:
    vendors = enumerate(("anthropic", "openai", "gemini"))
    credentials(harness, url, *(f'provider = "{vendor}"\nkey = "{KEYS[n]}"' for n, vendor in vendors))


@pytest.mark.slow
def test_three_providers_serve_the_roles_assigned_to_them(harness: RunHarness) -> None:
    harness.issues(40, 41, quality="weak")
    server = harness.server(keys=KEYS[:3])
    three_providers(harness, server.url)
    (harness.project / "agentos.toml").write_text(
        'drafter = "claude-sonnet-4-5"\nreviewer = ["openai/gpt-5", "gemini-2.5-pro"]\n'
    )
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 0, done.out
    played = {(call["role"], call["key"], call["model"]) for call in server.calls()}
    assert played == {("draft", "key-1", "claude-sonnet-4-5"), ("review", "key-2", "gpt-5")}
    assert {call["status"] for call in server.calls()} == {200}
    assert {"anthropic-1", "openai-1"} == {event["key"] for event in harness.events("lease_granted")}
    assert all(event["cost"] > 0 for event in harness.events("call_completed"))


@pytest.mark.slow
def test_a_fallback_reviews_when_the_preferred_provider_has_no_usable_key(harness: RunHarness) -> None:
    harness.issues(40, 41)
    server = harness.server(keys=KEYS[:3], fault={"kind": "429-insufficient", "key": "key-2", "times": None})
    three_providers(harness, server.url)
    (harness.project / "agentos.toml").write_text(
        'drafter = "claude-sonnet-4-5"\nreviewer = ["openai/gpt-5", "gemini-2.5-pro"]\n'
    )
    done = harness.run("--all")
    assert done.code == 0, done.out
    reviews = [(call["key"], call["status"]) for call in server.calls() if call["role"] == "review"]
    assert reviews == [("key-2", 429), ("key-3", 200), ("key-3", 200)]


def test_a_role_without_a_key_is_reported_before_anything_runs(harness: RunHarness) -> None:
    harness.issue(40)
    server = harness.server(keys=KEYS[:1])
    (harness.project / "agentos.toml").write_text('reviewer = "claude-sonnet-4-5"\n')
    done = harness.run("--all")
    assert done.code == 4 and "no API key for anthropic" in done.err
    assert server.calls() == []
