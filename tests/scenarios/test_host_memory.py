"""What one run has met, the runs beside it and after it are spared; the server's ledger decides."""

import os
import re
import signal
from pathlib import Path

import pytest

from .keyrings import credentials, keys, line, table
from .stage import KEYS, Running, Stage, until


def two_terminals(stage: Stage, *words: object) -> list[Running]:
    """Two projects, two items each, one home."""
    other = stage.root / "other"
    (other / "issues").mkdir(parents=True)
    stage.issues(40, 41)
    for number in (50, 51):
        path = stage.issue(number)
        path.rename(other / "issues" / path.name)
    return [stage.start("--all", *words, "--repo", project) for project in (stage.project, other)]


def attempts(stage: Stage) -> list[int]:
    return [event["attempts"] for run in stage.runs() for event in stage.events("ItemEnded", run)]


# Dead keys.


def test_a_dead_key_costs_one_call_on_the_host_until_a_person_enables_it(stage: Stage) -> None:
    witness = stage.server("--latency", "0.2,0.2", keys=KEYS[:2])
    path = credentials(stage, witness.url, table(4), table(1), table(2))
    for done in [running.end() for running in two_terminals(stage, "--parallel", 2)]:
        assert done.code == 0, done.out
    assert dead_calls(witness.calls()) == 1
    shown = line(keys(stage), "key-4")
    assert "quarantined" in shown and "last refusal: 400 API_KEY_INVALID" in shown
    stage.issue(42)
    assert stage.run("--all").code == 0
    assert dead_calls(witness.calls()) == 1, "the next run knows it too"
    assert keys(stage, "enable", "key-4").code == 0
    assert "available" in line(keys(stage), "key-4")
    stage.issue(43)
    assert stage.run("--all").code == 0
    assert dead_calls(witness.calls()) == 2
    path.write_text(path.read_text().replace(KEYS[3], KEYS[0][::-1]))
    assert "available" in line(keys(stage), "key-4"), "another secret"


def dead_calls(calls: list[dict[str, object]]) -> int:
    return sum(call["status"] == 400 for call in calls)


@pytest.mark.long
def test_a_key_of_the_environment_that_answers_again_is_used_again(stage: Stage) -> None:
    witness = stage.server(keys=KEYS[:2], fault={"kind": "402", "key": "key-1"})
    stage.issue(40)
    assert stage.run("--all").code == 0
    assert "quarantined" in line(keys(stage), "key-1")
    checked = keys(stage, "check", "key-1")
    assert checked.code == 0 and "key-1: answers" in checked.out
    assert "available" in line(keys(stage), "key-1")
    stage.issue(41)
    assert stage.run("--all").code == 0
    assert [call["key"] for call in witness.answered()].count("key-1") >= 2


# Limits.


def test_a_limit_that_a_killed_run_was_told_of_is_kept_to_by_the_next(stage: Stage) -> None:
    stage.issue(40)
    told = {"kind": "429-minute", "role": "review", "limit": 1, "retry_delay": 1}
    witness = stage.server(keys=KEYS[:1], fault=told)
    credentials(stage, witness.url, table(1))
    first = stage.start("--all")
    until(lambda: stage.events("KeyLimited"))
    first.signal(signal.SIGKILL)
    first.end()
    assert "1 of 1 requests/60s" in line(keys(stage), "key-1")
    second = stage.start("--all")
    until(lambda: len(stage.runs()) == 2 and stage.events("LeaseRequested", stage.runs()[-1]))
    second.signal(signal.SIGINT)
    assert second.end().code == 130
    assert not stage.events("LeaseGranted", stage.runs()[-1]), "its minute is not over"
    assert [call["status"] for call in witness.calls()] == [200, 429]


# Storms.


def test_two_terminals_in_a_storm_send_one_probe_at_a_time_and_lose_no_attempt(stage: Stage) -> None:
    witness = stage.server(fault={"kind": "503", "times": None})
    credentials(stage, witness.url, *(table(number, "rpm = 1000") for number in (1, 2, 3, 4)))
    runs = two_terminals(stage, "--parallel", 2)
    for running in runs:
        running.says("gemini is failing")
    before = len(witness.calls())
    until(lambda: len(witness.calls()) > before, 30)
    witness.clear_faults()
    for done in [running.end(60) for running in runs]:
        assert done.code == 0, done.out
    calls = sorted(witness.calls(), key=lambda call: call["started"])
    failed = [call for call in calls if call["status"] == 503]
    assert 6 <= len(failed) <= 12, "five begin it, up to three are under way, then one at a time"
    probe = failed[-1]
    (last,) = [call for call in failed if call["seq"] == max(one["seq"] for one in failed[:-1])]
    answer = next(call for call in calls if call["status"] == 200)
    assert probe["started"] - last["ended"] > 1.4
    assert answer["started"] - probe["ended"] > 2.9, "each look in vain makes the wait longer"
    assert attempts(stage) == [1] * 4 and len(witness.answered()) == 8
    assert all("ItemRetried" not in {event["type"] for event in stage.journal(run)} for run in stage.runs())


# Days.


@pytest.mark.long
def test_what_a_killed_run_has_sent_counts_for_the_day_of_the_next(stage: Stage) -> None:
    """By a provider whose day begins with its first call: no midnight comes in between."""
    stage.issues(40, 41, 42, 43)
    witness = stage.server("--rpd", "6", keys=KEYS[:1], fault={"kind": "hang", "nth": 5})
    credentials(stage, witness.url, table(1, 'provider = "anthropic"', "rpd = 6"))
    first = stage.start("--all")
    until(lambda: len(witness.calls()) == 5, 30)
    for mark in [*first.processes()]:
        os.kill(mark.pid, 9)
    first.process.kill()
    first.process.wait()
    age(stage.home / "quota/notes.jsonl")
    second = stage.run("--all")
    assert second.code == 75, second.out
    assert "Daily quota of key-1 is used up" in second.out
    assert len(witness.calls()) == 6 and {call["status"] for call in witness.calls()} <= {200, None}
    shown = line(keys(stage), "key-1")
    assert "exhausted for the day" in shown and "6 of 6 requests a day" in shown
    assert stage.run("--all").code == 75
    assert len(witness.calls()) == 6, "after a restart no call"


def age(notes: Path) -> None:
    """As if all of it had been written two minutes ago."""
    notes.write_text(re.sub(r'"at":(\d+\.\d+)', _earlier, notes.read_text()))


def _earlier(found: re.Match[str]) -> str:
    return f'"at":{float(found[1]) - 120}'
