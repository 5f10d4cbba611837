"""The key pool in a real run: limits, refusals, storms, and edits of the credentials."""

import json
import re
from pathlib import Path

import pytest

from .stage import KEYS, Done, Stage, until


def said(done: Done, text: str) -> int:
    return sum(text in line for line in done.of("COORDINATOR"))


def credentials(stage: Stage, url: str, *names: str) -> None:
    """Writes credentials.toml with the keys of these numbers, whole at every moment."""
    stage.home.mkdir(mode=0o700, exist_ok=True)
    tables = [
        f'[[credential]]\nname = "key-{name}"\nkey = "{KEYS[int(name) - 1]}"\nbase_url = "{url}"\n'
        for name in names
    ]
    draft = stage.root / "credentials.draft"
    draft.write_text("\n".join(tables))
    draft.chmod(0o600)
    draft.rename(stage.home / "credentials.toml")


def test_two_keys_for_five_workers_pause_once_an_episode_and_all_items_finish(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43, 44, 45)
    witness = stage.server("--latency", "0.3,0.3")
    done = stage.run("--all", "--parallel", 5, AGENTOS_CREDENTIAL_LIMIT="2")
    assert done.code == 0, done.out
    assert all(stage.document(number).exists() for number in range(40, 46))
    assert "2 key slots for 5 workers" in done.out and "AGENTOS_KEY_CONCURRENCY" in done.out
    episodes = [
        event["type"] for event in stage.journal() if event["type"] in ("PoolExhausted", "PoolRestored")
    ]
    assert episodes and episodes == ["PoolExhausted", "PoolRestored"] * (len(episodes) // 2)
    assert said(done, "Credential pool exhausted. Pausing all workflows...") == len(episodes) // 2
    assert said(done, "Resuming workflows...") == len(episodes) // 2
    assert "Rate limit" not in done.out and said(done, "rate limited") == 0
    call_log = witness.ledger()
    assert set(call_log["max_concurrent"]) == {"key-1", "key-2"} and call_log["max_concurrent_all"] == 2
    assert max(call_log["max_concurrent"].values()) == 1
    assert {call["status"] for call in call_log["calls"]} == {200}


def test_more_calls_for_each_key_when_the_environment_says_so(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    witness = stage.server("--latency", "0.5,0.5", keys=KEYS[:1])
    done = stage.run("--all", "--parallel", 3, AGENTOS_KEY_CONCURRENCY="3")
    assert done.code == 0 and "Credential pool exhausted" not in done.out
    assert witness.ledger()["max_concurrent"] == {"key-1": 3}


def test_a_simulated_refusal_rests_one_key_and_the_item_goes_on_with_another(stage: Stage) -> None:
    stage.issues(42, 43, 44)
    done = stage.run("--all", "--parallel", 3, "--offline", AGENTOS_SIMULATE_429="true")
    assert done.code == 0, done.out
    found = re.findall(
        r"\[COORDINATOR\] Rate limit hit on (key-\d)\. Backing off for 60s\. Redistributing work\.\.\.",
        done.out,
    )
    assert len(found) == 1
    assert all(stage.document(number).exists() for number in (42, 43, 44))
    granted = [event["key"] for event in stage.events("LeaseGranted")]
    assert granted[2] == found[0] and found[0] not in granted[3:]
    assert {event["attempts"] for event in stage.events("ItemEnded")} == {1}
    assert "1 refusal (429)" in done.out


@pytest.mark.parametrize(
    "fault", [{"kind": "429-minute", "retry_delay": 2}, {"kind": "429-retry-after", "retry_after": "2"}]
)
def test_a_limited_key_is_not_used_before_its_time(stage: Stage, fault: dict[str, object]) -> None:
    stage.issues(*range(40, 44), quality="weak")
    witness = stage.server(
        "--latency", "0.25,0.25", keys=KEYS[:2], fault={**fault, "key": "key-1", "nth_of_key": 2}
    )
    done = stage.run("--all", "--parallel", 2)
    assert done.code == 0
    assert said(done, "Rate limit hit on key-1. Backing off for 2s. Redistributing work...") == 1
    refused = next(call for call in witness.calls() if call["status"] == 429)
    later = [call for call in witness.calls() if call["key"] == "key-1" and call["seq"] > refused["seq"]]
    assert later and min(call["started"] for call in later) - refused["ended"] >= 2 - 0.01
    between = [call for call in witness.calls() if refused["ended"] < call["started"] < refused["ended"] + 2]
    assert between and {call["key"] for call in between} == {"key-2"}
    assert {event["attempts"] for event in stage.events("ItemEnded")} == {1}


def test_all_keys_limited_is_said_once_and_the_run_goes_on_at_the_earliest_end(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    faults = [
        {"kind": "429-minute", "key": f"key-{n}", "nth_of_key": 1, "retry_delay": 1 + n} for n in (1, 2)
    ]
    file = stage.root / "faults.json"
    file.write_text(json.dumps(faults))
    witness = stage.server("--faults", str(file), keys=KEYS[:2])
    done = stage.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    lines = re.findall(
        r"All keys rate limited\. Pausing all workflows until \d\d:\d\d:\d\d \(key-1\)\.\.\.", done.out
    )
    assert len(lines) == 1 and said(done, "Keys are back") == 1
    refused = {call["key"]: call["ended"] for call in witness.calls() if call["status"] == 429}
    assert set(refused) == {"key-1", "key-2"}
    first = min(call["started"] for call in witness.calls() if call["status"] == 200)
    assert 2 - 0.01 <= first - refused["key-1"] < 5
    assert all(stage.document(number).exists() for number in (40, 41, 42))


def test_without_a_key_in_time_the_run_saves_and_exits_75_and_the_same_command_goes_on(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(
        keys=KEYS[:1], fault={"kind": "429-minute", "role": "review", "retry_delay": 6, "times": None}
    )
    done = stage.run("--all", "--parallel", 2, "--max-wait", "2s")
    assert done.code == 75, done.out
    assert done.lines[-1].endswith("Go on with: lld-workflow --all --parallel 2 --max-wait 2s")
    assert "key-1" in done.out and "FAILED" not in done.out
    assert "lld_workflow_42.db" in stage.databases()
    refused = max(call["started"] for call in witness.calls() if call["status"] == 429)
    witness.clear_faults()
    assert stage.run("--all", "--parallel", 2).code == 0
    later = [call["started"] for call in witness.calls() if call["started"] > refused]
    assert min(later) >= refused + 6 - 0.01, "what the provider said outlives the run"
    assert len(witness.answered()) == 4 and not witness.asked_twice()


def test_a_day_quota_spares_its_key_until_the_reset(stage: Stage) -> None:
    stage.issues(40, 41, 42, 43)
    witness = stage.server(
        "--latency", "0.1,0.1", keys=KEYS[:2], fault={"kind": "429-day", "key": "key-2", "times": None}
    )
    done = stage.run("--all", "--parallel", 2)
    assert done.code == 0
    assert said(done, "Daily quota of key-2 is used up until ") == 1
    assert len([call for call in witness.calls() if call["key"] == "key-2"]) <= 2
    assert len(witness.answered()) == 8
    spent = sum(call["key"] == "key-2" for call in witness.calls())
    stage.issues(44, 45)
    assert stage.run("--all", "--parallel", 2).code == 0
    assert sum(call["key"] == "key-2" for call in witness.calls()) == spent, "the next run knows it too"


def test_a_spent_day_is_said_with_its_end_by_the_run_and_by_a_dry_run(stage: Stage) -> None:
    """The end that can be counted on, not the hourly look whether it was true."""
    stage.issues(40, 41)
    stage.server("--latency", "0.1,0.1", keys=KEYS[:1], fault={"kind": "429-day", "nth": 3, "times": None})
    done = stage.run("--all")
    assert done.code == 75, done.out
    (spent,) = re.findall(r"Daily quota of key-1 is used up until (.*?) \(429", done.out)
    assert f"All keys rate limited. Pausing all workflows until {spent} (key-1)..." in done.out
    assert f"no key comes back within --max-wait; the first is key-1, at {spent}" in done.out
    said = stage.run("--all", "--dry-run").out
    assert "It would stop for quota or budget (exit 75) with 0 of 1 item ended" in said
    assert "Bottleneck" not in said, "what stops it is what holds it up"
    assert "  LLD-40  approved" in stage.run("status", program="agentos").out


def test_a_key_that_is_spent_for_one_model_is_told_apart_by_model(stage: Stage) -> None:
    stage.issues(40, 41)
    stage.server("--rpd", "1", "--per-model", keys=KEYS[:1])
    (stage.project / "agentos.toml").write_text('reviewer = "gemini/gemini-2.5-flash"\n')
    assert stage.run("--all").code == 75
    (row,) = stage.run("keys", program="agentos").lines
    until = r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in \d+h \d\dm\)"
    found = re.match(
        rf"key-1  gemini    available for ([\w.-]+); exhausted for the day for ([\w.-]+), {until}, ", row
    )
    assert found and set(found.groups()) == {"gemini-2.5-flash", "gemini-2.5-pro"}, row
    (event,) = stage.events("KeyExhausted")
    assert "last refusal: " in row and event["reason"] in row


def test_a_rejected_key_is_quarantined_after_one_wasted_call(stage: Stage) -> None:
    stage.issues(42, 43, 44)
    kinds = ("400-key", "401", "402", "403")
    faults = [{"kind": kind, "key": f"key-{n}", "times": None} for n, kind in enumerate(kinds, 1)]
    file = stage.root / "faults.json"
    file.write_text(json.dumps(faults))
    witness = stage.server("--faults", str(file), keys=(*KEYS, "canary-key-epsilon-1b2c"))
    done = stage.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    assert said(done, " was rejected (") == 4
    refused = {call["key"]: call["status"] for call in witness.calls() if call["status"] != 200}
    assert refused == {"key-1": 400, "key-2": 401, "key-3": 402, "key-4": 403}
    assert len(witness.calls()) == 4 + 6 and {call["key"] for call in witness.answered()} == {"key-5"}


def test_when_every_key_is_rejected_the_run_saves_and_exits_4(stage: Stage) -> None:
    stage.issues(42, 43)
    witness = stage.server(keys=KEYS[:2], fault={"kind": "400-key", "role": "review", "times": None})
    done = stage.run("--all")
    assert done.code == 4, done.out
    assert "400 API_KEY_INVALID" in done.out and "agentos keys" in done.out
    assert "lld_workflow_42.db" in stage.databases() and "FAILED" not in done.out
    assert len([call for call in witness.calls() if call["status"] == 400]) == 2
    witness.clear_faults()
    assert stage.run("--all").code == 0
    assert len(witness.answered()) == 4 and not witness.asked_twice()


def test_a_storm_of_server_errors_costs_time_and_no_attempt(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    faults = [{"kind": kind} for kind in ("500", "reset", "503", "reset-midway", "529", "502")]
    file = stage.root / "faults.json"
    file.write_text(json.dumps(faults))
    witness = stage.server("--faults", str(file))
    done = stage.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    assert {call["fault"] for call in witness.calls()} >= {fault["kind"] for fault in faults}
    assert len(witness.answered()) == 6
    assert {event["attempts"] for event in stage.events("ItemEnded")} == {1}
    assert not stage.events("KeyQuarantined") and not stage.events("KeyLimited")
    assert not stage.events("ItemRetried")


def test_an_answer_that_is_none_is_asked_for_again(stage: Stage) -> None:
    stage.issue(42)
    file = stage.root / "faults.json"
    file.write_text(json.dumps([{"kind": "cut"}, {"kind": "html"}]))
    witness = stage.server("--faults", str(file))
    done = stage.run("--all")
    assert done.code == 0, done.out
    assert [call["fault"] for call in witness.calls()] == ["cut", "html", None, None]
    assert stage.document(42).exists() and {event["attempts"] for event in stage.events("ItemEnded")} == {1}


def test_keys_added_and_removed_during_a_run_are_taken_up(stage: Stage) -> None:
    stage.issues(*range(40, 46))
    witness = stage.server("--latency", "0.6,0.6")
    stage.keys, url = (), witness.url
    credentials(stage, url, "1", "2")
    running = stage.start("--all", "--parallel", 3)
    until(lambda: len(witness.calls()) >= 2)
    credentials(stage, url, "2", "3", "4")
    running.says("The credentials were changed (new: key-3, key-4; gone: key-1).")
    done = running.end()
    assert done.code == 0
    kinds = [event["type"] for event in stage.journal()]
    granted = [
        event["key"]
        for event in stage.journal()[kinds.index("KeysChanged") :]
        if event["type"] == "LeaseGranted"
    ]
    assert set(granted) == {"key-2", "key-3", "key-4"}
    assert {call["key"] for call in witness.calls()} == {"key-1", "key-2", "key-3", "key-4"}
    assert len(witness.answered()) == 12 and not witness.asked_twice()


def test_a_new_key_ends_the_wait_of_a_run_that_has_none_left(stage: Stage) -> None:
    stage.issue(42)
    witness = stage.server(fault={"kind": "429-minute", "key": "key-1", "retry_delay": 600, "times": None})
    stage.keys = ()
    credentials(stage, witness.url, "1")
    running = stage.start("--all")
    running.says("All keys rate limited.")
    (stage.home / "credentials.toml").write_text("[[credential]]\nkey = 3\n")
    running.says("The credentials were changed, but cannot be used")
    credentials(stage, witness.url, "1", "2")
    done = running.end()
    assert done.code == 0 and said(done, "Keys are back") == 1
    assert {call["key"] for call in witness.answered()} == {"key-2"}


def test_without_any_key_the_ways_to_give_one_are_named(stage: Stage) -> None:
    stage.issue(42)
    before = sorted(stage.project.rglob("*"))
    done = stage.run("--all")
    assert done.code == 4
    for way in ("GEMINI_API_KEY_1", "agentos keys add", "[[credential]]", "--offline"):
        assert way in done.err
    assert "Traceback" not in done.err
    assert [path for path in sorted(stage.project.rglob("*")) if path not in before] == []


def test_a_quarantined_key_comes_back_when_the_file_gives_it_a_new_secret(stage: Stage) -> None:
    stage.issues(40, 41, 42)
    witness = stage.server("--latency", "0.5,0.5", keys=KEYS[:3])
    stage.keys = ()
    credentials(stage, witness.url, "1", "4")
    running = stage.start("--all")
    running.says("key-4 was rejected (400 API_KEY_INVALID)")
    place: Path = stage.home / "credentials.toml"
    text = place.read_text().replace(KEYS[3], KEYS[2])
    draft = stage.root / "draft"
    draft.write_text(text)
    draft.chmod(0o600)
    draft.rename(place)
    done = running.end()
    assert done.code == 0
    until(lambda: "key-3" in {call["key"] for call in witness.answered()}, 1)
