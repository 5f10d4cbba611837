"""What one run learns about the keys is known to concurrent and later runs, as the server's call log shows."""

import os
import re
import signal
from pathlib import Path

import pytest

from .harness import KEYS, Json, RunHarness, RunningCommand, wait_until
from .keyrings import credentials, keys, line, table


def two_terminals(harness: RunHarness, *args: object) -> list[RunningCommand]:
    """Start runs in two projects with two items each and a shared home."""
    other = harness.root / "other"
    (other / "issues").mkdir(parents=True)
    harness.issues(40, 41)
    for number in (50, 51):
        path = harness.issue(number)
        path.rename(other / "issues" / path.name)
    return [harness.start("--all", *args, "--repo", project) for project in (harness.project, other)]


def attempts(harness: RunHarness) -> list[int]:
    return [event["attempts"] for run in harness.runs() for event in harness.events("item_ended", run)]


# Rejected keys


@pytest.mark.slow
def test_a_rejected_key_costs_one_call_per_host_until_it_is_enabled_again(harness: RunHarness) -> None:
    server = harness.server("--latency", "0.2,0.2", keys=KEYS[:2])
    path = credentials(harness, server.url, table(4), table(1), table(2))
    for done in [running.wait() for running in two_terminals(harness, "--parallel", 2)]:
        assert done.code == 0, done.out
    assert dead_calls(server.calls()) == 1
    shown = line(keys(harness), "key-4")
    assert "quarantined" in shown and "last refusal: 400 API_KEY_INVALID" in shown
    harness.issue(42)
    assert harness.run("--all").code == 0
    assert dead_calls(server.calls()) == 1, "the next run knows it too"
    assert keys(harness, "enable", "key-4").code == 0
    assert "available" in line(keys(harness), "key-4")
    harness.issue(43)
    assert harness.run("--all").code == 0
    assert dead_calls(server.calls()) == 2
    path.write_text(path.read_text().replace(KEYS[3], KEYS[0][::-1]))
    assert "available" in line(keys(harness), "key-4"), "another secret"


def dead_calls(calls: list[dict[str, object]]) -> int:
    return sum(call["status"] == 400 for call in calls)


@pytest.mark.long
def test_an_environment_key_that_recovers_is_used_again(harness: RunHarness) -> None:
    server = harness.server(keys=KEYS[:2], fault={"kind": "402", "key": "key-1"})
    harness.issue(40)
    assert harness.run("--all").code == 0
    assert "quarantined" in line(keys(harness), "key-1")
    checked = keys(harness, "check", "key-1")
    assert checked.code == 0 and "key-1: works" in checked.out
    assert "available" in line(keys(harness), "key-1")
    harness.issue(41)
    assert harness.run("--all").code == 0
    assert [call["key"] for call in server.answered()].count("key-1") >= 2


# Rate limits


@pytest.mark.slow
def test_a_cooldown_seen_by_a_killed_run_is_respected_by_the_next(harness: RunHarness) -> None:
    harness.issue(40)
    fault = {"kind": "429-minute", "role": "review", "limit": 1, "retry_delay": 1}
    server = harness.server(keys=KEYS[:1], fault=fault)
    credentials(harness, server.url, table(1))
    first = harness.start("--all")
    wait_until(lambda: harness.events("key_limited"))
    first.signal(signal.SIGKILL)
    first.wait()
    assert "1 of 1 requests/60s" in line(keys(harness), "key-1")
    second = harness.start("--all")
    wait_until(lambda: len(harness.runs()) == 2 and harness.events("lease_requested", harness.runs()[-1]))
    second.signal(signal.SIGINT)
    assert second.wait().code == 130
    assert not harness.events("lease_granted", harness.runs()[-1]), "its minute is not over"
    assert [call["status"] for call in server.calls()] == [200, 429]


# Server error storms


@pytest.mark.slow
def test_two_runs_during_an_outage_send_one_probe_at_a_time_and_lose_no_attempt(harness: RunHarness) -> None:
    server = harness.server(fault={"kind": "503", "times": None})
    credentials(harness, server.url, *(table(number, "rpm = 1000") for number in (1, 2, 3, 4)))
    runs = two_terminals(harness, "--parallel", 2)
    for running in runs:
        running.wait_for("is failing for all calls")
    # Calls that were in flight when the breaker opened come first; the probe is the first after a pause.
    wait_until(lambda: pause_before_last(server.calls()) > 1.4, 60)
    server.clear_faults()
    for done in [running.wait(60) for running in runs]:
        assert done.code == 0, done.out
    calls = sorted(server.calls(), key=lambda call: call["started"])
    failed = [call for call in calls if call["status"] == 503]
    assert 6 <= len(failed) <= 12, (
        "five open the breaker, up to three are in flight, then one probe at a time"
    )
    answer = next(call for call in calls if call["status"] == 200)
    assert pause_before_last([*failed, answer]) > 2.9, "each look in vain makes the wait longer"
    assert attempts(harness) == [1] * 4 and len(server.answered()) == 8
    assert all(
        "item_retried" not in {event["type"] for event in harness.journal(run)} for run in harness.runs()
    )


def pause_before_last(calls: list[Json]) -> float:
    """Seconds between the end of all other calls and the start of the latest one."""
    *earlier, latest = sorted(calls, key=lambda call: call["started"])
    return float(latest["started"] - max(call["ended"] for call in earlier))


# Daily quotas


@pytest.mark.long
def test_calls_of_a_killed_run_count_towards_the_daily_quota(harness: RunHarness) -> None:
    """Uses a provider whose quota day starts with the first call, so midnight cannot interfere."""
    harness.issues(40, 41, 42, 43)
    server = harness.server("--rpd", "6", keys=KEYS[:1], fault={"kind": "hang", "nth": 5})
    credentials(harness, server.url, table(1, 'provider = "anthropic"', "rpd = 6"))
    first = harness.start("--all")
    wait_until(lambda: len(server.calls()) == 5, 30)
    for mark in [*first.processes()]:
        os.kill(mark.pid, 9)
    first.process.kill()
    first.process.wait()
    age(harness.home / "quota/notes.jsonl")
    second = harness.run("--all")
    assert second.code == 75, second.out
    assert "Daily quota of key-1 exhausted until" in second.out
    assert len(server.calls()) == 6 and {call["status"] for call in server.calls()} <= {200, None}
    shown = line(keys(harness), "key-1")
    assert "exhausted for the day" in shown and "6 of 6 requests a day" in shown
    assert harness.run("--all").code == 75
    assert len(server.calls()) == 6, "after a restart no call"


def age(notes: Path) -> None:
    """Make all notes two minutes older."""
    notes.write_text(re.sub(r'"at":(\d+\.\d+)', _earlier, notes.read_text()))


def _earlier(found: re.Match[str]) -> str:
    return f'"at":{float(found[1]) - 120}'
