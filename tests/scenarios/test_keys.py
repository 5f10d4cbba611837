"""The key pool in a real run: limits, refusals, server errors, and edits of the credentials file."""

import json
import re
from pathlib import Path

import pytest

from .harness import KEYS, CompletedCommand, RunHarness, title_of, wait_until


def count_lines(done: CompletedCommand, text: str) -> int:
    return sum(text in line for line in done.lines_of("COORDINATOR"))


def credentials(harness: RunHarness, url: str, *names: str) -> None:
    """Write credentials.toml atomically with the keys of these numbers."""
    harness.home.mkdir(mode=0o700, exist_ok=True)
    tables = [
        f'[[credential]]\nname = "key-{name}"\nkey = "{KEYS[int(name) - 1]}"\nbase_url = "{url}"\n'
        for name in names
    ]
    draft = harness.root / "credentials.draft"
    draft.write_text("\n".join(tables))
    draft.chmod(0o600)
    draft.rename(harness.home / "credentials.toml")


@pytest.mark.slow
def test_two_keys_for_five_workers_are_enough_and_each_pause_is_announced_once(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43, 44, 45)
    server = harness.server("--latency", "0.3,0.3")
    done = harness.run("--all", "--parallel", 5, AGENTOS_CREDENTIAL_LIMIT="2")
    assert done.code == 0, done.out
    assert all(harness.document(number).exists() for number in range(40, 46))
    assert "2 key slots for 5 workers" in done.out and "AGENTOS_KEY_CONCURRENCY" in done.out
    episodes = [
        event["type"] for event in harness.journal() if event["type"] in ("pool_exhausted", "pool_restored")
    ]
    assert episodes and episodes == ["pool_exhausted", "pool_restored"] * (len(episodes) // 2)
    assert count_lines(done, "Credential pool exhausted. Pausing all workflows...") == len(episodes) // 2
    assert count_lines(done, "Resuming workflows...") == len(episodes) // 2
    assert "Rate limit" not in done.out and count_lines(done, "rate limited") == 0
    call_log = server.ledger()
    assert set(call_log["max_concurrent"]) == {"key-1", "key-2"} and call_log["max_concurrent_all"] == 2
    assert max(call_log["max_concurrent"].values()) == 1
    assert {call["status"] for call in call_log["calls"]} == {200}


@pytest.mark.slow
def test_the_concurrency_variable_allows_more_calls_per_key(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    server = harness.server("--latency", "0.5,0.5", keys=KEYS[:1])
    done = harness.run("--all", "--parallel", 3, AGENTOS_KEY_CONCURRENCY="3")
    assert done.code == 0 and "Credential pool exhausted" not in done.out
    assert server.ledger()["max_concurrent"] == {"key-1": 3}


def test_a_simulated_refusal_cools_down_one_key_and_the_item_continues_with_another(
    harness: RunHarness,
) -> None:
    harness.issues(42, 43, 44)
    done = harness.run("--all", "--parallel", 3, "--offline", AGENTOS_SIMULATE_429="true")
    assert done.code == 0, done.out
    found = re.findall(
        r"\[COORDINATOR\] Rate limit hit on (key-\d)\. Backing off for 60s\. Redistributing work\.\.\.",
        done.out,
    )
    assert len(found) == 1
    assert all(harness.document(number).exists() for number in (42, 43, 44))
    granted = [event["key"] for event in harness.events("lease_granted")]
    assert granted[2] == found[0] and found[0] not in granted[3:]
    assert {event["attempts"] for event in harness.events("item_ended")} == {1}
    assert "1 refusal (429)" in done.out


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "429-minute", "retry_delay": 2},
        pytest.param({"kind": "429-retry-after", "retry_after": "2"}, marks=pytest.mark.slow),
    ],
)
def test_a_rate_limited_key_is_not_used_during_its_cooldown(
    harness: RunHarness, fault: dict[str, object]
) -> None:
    harness.issues(*range(40, 44), quality="weak")
    server = harness.server(
        "--latency", "0.25,0.25", keys=KEYS[:2], fault={**fault, "key": "key-1", "nth_of_key": 2}
    )
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 0
    assert count_lines(done, "Rate limit hit on key-1. Backing off for 2s. Redistributing work...") == 1
    refused = next(call for call in server.calls() if call["status"] == 429)
    later = [call for call in server.calls() if call["key"] == "key-1" and call["seq"] > refused["seq"]]
    assert later and min(call["started"] for call in later) - refused["ended"] >= 2 - 0.01
    between = [call for call in server.calls() if refused["ended"] < call["started"] < refused["ended"] + 2]
    assert between and {call["key"] for call in between} == {"key-2"}
    assert {event["attempts"] for event in harness.events("item_ended")} == {1}


def test_exhausted_keys_are_announced_once_and_the_run_resumes_at_the_earliest_reset(
    harness: RunHarness,
) -> None:
    harness.issues(40, 41, 42)
    faults = [
        {"kind": "429-minute", "key": f"key-{n}", "nth_of_key": 1, "retry_delay": 1 + n} for n in (1, 2)
    ]
    file = harness.root / "faults.json"
    file.write_text(json.dumps(faults))
    server = harness.server("--faults", str(file), keys=KEYS[:2])
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    lines = re.findall(
        r"All keys rate limited\. Pausing all workflows until \d\d:\d\d:\d\d \(key-1\)\.\.\.", done.out
    )
    assert len(lines) == 1 and count_lines(done, "Keys are available again") == 1
    refused = {call["key"]: call["ended"] for call in server.calls() if call["status"] == 429}
    assert set(refused) == {"key-1", "key-2"}
    first = min(call["started"] for call in server.calls() if call["status"] == 200)
    assert 2 - 0.01 <= first - refused["key-1"] < 5
    assert all(harness.document(number).exists() for number in (40, 41, 42))


@pytest.mark.slow
def test_without_a_key_in_time_the_run_exits_with_75_and_the_same_command_resumes(
    harness: RunHarness,
) -> None:
    harness.issues(42, 43)
    server = harness.server(
        keys=KEYS[:1], fault={"kind": "429-minute", "role": "review", "retry_delay": 6, "times": None}
    )
    done = harness.run("--all", "--parallel", 2, "--max-wait", "2s")
    assert done.code == 75, done.out
    assert done.lines[-1].endswith("Resume with: lld-workflow --all --parallel 2 --max-wait 2s")
    assert "key-1" in done.out and "FAILED" not in done.out
    assert "lld_workflow_42.db" in harness.databases()
    refused = max(call["started"] for call in server.calls() if call["status"] == 429)
    server.clear_faults()
    assert harness.run("--all", "--parallel", 2).code == 0
    later = [call["started"] for call in server.calls() if call["started"] > refused]
    assert min(later) >= refused + 6 - 0.01, "the cooldown did not outlive the run"
    assert len(server.answered()) == 4 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_key_with_an_exhausted_daily_quota_is_not_used_until_the_reset(harness: RunHarness) -> None:
    harness.issues(40, 41, 42, 43)
    server = harness.server(
        "--latency", "0.1,0.1", keys=KEYS[:2], fault={"kind": "429-day", "key": "key-2", "times": None}
    )
    done = harness.run("--all", "--parallel", 2)
    assert done.code == 0
    assert count_lines(done, "Daily quota of key-2 exhausted until ") == 1
    assert len([call for call in server.calls() if call["key"] == "key-2"]) <= 2
    assert len(server.answered()) == 8
    spent = sum(call["key"] == "key-2" for call in server.calls())
    harness.issues(44, 45)
    assert harness.run("--all", "--parallel", 2).code == 0
    assert sum(call["key"] == "key-2" for call in server.calls()) == spent, "the next run knows it too"


@pytest.mark.slow
def test_an_exhausted_daily_quota_is_reported_with_its_reset_by_run_and_dry_run(harness: RunHarness) -> None:
    """The forecast names the certain reset time, not the hourly probe."""
    harness.issues(40, 41)
    harness.server("--latency", "0.1,0.1", keys=KEYS[:1], fault={"kind": "429-day", "nth": 3, "times": None})
    briefly = ("--max-wait", "5s")  # the day may be over within the hour that a run waits by default
    done = harness.run("--all", *briefly)
    assert done.code == 75, done.out
    (spent,) = re.findall(r"Daily quota of key-1 exhausted until (.*?) \(429", done.out)
    assert f"All keys rate limited. Pausing all workflows until {spent} (key-1)..." in done.out
    assert f"no key comes back within --max-wait; the first is key-1, at {spent}" in done.out
    forecast = harness.run("--all", "--dry-run", *briefly).out
    assert "The run would stop for quota or budget (exit 75) after 0 of 1 item" in forecast
    assert "Bottleneck" not in forecast, "the stop reason is also named as the bottleneck"
    assert "  LLD-40  approved" in harness.run("status", program="agentos").out


@pytest.mark.slow
def test_an_exhausted_quota_is_tracked_per_model(harness: RunHarness) -> None:
    harness.issues(40, 41)
    harness.server("--rpd", "1", "--per-model", keys=KEYS[:1])
    (harness.project / "agentos.toml").write_text('reviewer = "gemini/gemini-2.5-flash"\n')
    assert harness.run("--all", "--max-wait", "5s").code == 75
    (row,) = harness.run("keys", program="agentos").lines
    until = r"until (?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d \(in [\dhms ]+\)"  # without the date if it is today
    found = re.match(
        rf"key-1  gemini    available for ([\w.-]+); exhausted for the day for ([\w.-]+), {until}, ", row
    )
    assert found and set(found.groups()) == {"gemini-2.5-flash", "gemini-2.5-pro"}, row
    (event,) = harness.events("key_exhausted")
    assert "last refusal: " in row and event["reason"] in row


def test_a_rejected_key_is_quarantined_after_one_wasted_call(harness: RunHarness) -> None:
    harness.issues(42, 43, 44)
    kinds = ("400-key", "401", "402", "403")
    faults = [{"kind": kind, "key": f"key-{n}", "times": None} for n, kind in enumerate(kinds, 1)]
    file = harness.root / "faults.json"
    file.write_text(json.dumps(faults))
    server = harness.server("--faults", str(file), keys=(*KEYS, "canary-key-epsilon-1b2c"))
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    assert count_lines(done, " was rejected (") == 3 and count_lines(done, "key-4 may not use ") == 1
    refused = {call["key"]: call["status"] for call in server.calls() if call["status"] != 200}
    assert refused == {"key-1": 400, "key-2": 401, "key-3": 402, "key-4": 403}
    assert len(server.calls()) == 4 + 6 and {call["key"] for call in server.answered()} == {"key-5"}


@pytest.mark.slow
def test_when_every_key_is_rejected_the_run_saves_and_exits_with_4(harness: RunHarness) -> None:
    harness.issues(42, 43)
    server = harness.server(keys=KEYS[:2], fault={"kind": "400-key", "role": "review", "times": None})
    done = harness.run("--all")
    assert done.code == 4, done.out
    assert "400 API_KEY_INVALID" in done.out and "agentos keys" in done.out
    assert "lld_workflow_42.db" in harness.databases() and "FAILED" not in done.out
    assert len([call for call in server.calls() if call["status"] == 400]) == 2
    server.clear_faults()
    assert harness.run("--all").code == 0
    assert len(server.answered()) == 4 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_burst_of_server_errors_costs_time_but_no_attempt(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    faults = [{"kind": kind} for kind in ("500", "reset", "503", "reset-midway", "529", "502")]
    file = harness.root / "faults.json"
    file.write_text(json.dumps(faults))
    server = harness.server("--faults", str(file))
    done = harness.run("--all", "--parallel", 3)
    assert done.code == 0, done.out
    assert {call["fault"] for call in server.calls()} >= {fault["kind"] for fault in faults}
    assert len(server.answered()) == 6
    assert {event["attempts"] for event in harness.events("item_ended")} == {1}
    assert not harness.events("key_quarantined") and not harness.events("key_limited")
    assert not harness.events("item_retried")


@pytest.mark.slow
def test_a_truncated_or_malformed_response_is_requested_again(harness: RunHarness) -> None:
    harness.issue(42)
    file = harness.root / "faults.json"
    file.write_text(json.dumps([{"kind": "cut"}, {"kind": "html"}]))
    server = harness.server("--faults", str(file))
    done = harness.run("--all")
    assert done.code == 0, done.out
    assert [call["fault"] for call in server.calls()] == ["cut", "html", None, None]
    assert harness.document(42).exists() and {
        event["attempts"] for event in harness.events("item_ended")
    } == {1}


@pytest.mark.slow
def test_keys_added_and_removed_during_a_run_take_effect(harness: RunHarness) -> None:
    harness.issues(*range(40, 46))
    server = harness.server("--latency", "0.6,0.6")
    harness.keys, url = (), server.url
    credentials(harness, url, "1", "2")
    running = harness.start("--all", "--parallel", 3)
    wait_until(lambda: len(server.calls()) >= 2)
    credentials(harness, url, "2", "3", "4")
    running.wait_for("Credentials changed (added: key-3, key-4; removed: key-1).")
    done = running.wait()
    assert done.code == 0
    kinds = [event["type"] for event in harness.journal()]
    granted = [
        event["key"]
        for event in harness.journal()[kinds.index("keys_changed") :]
        if event["type"] == "lease_granted"
    ]
    assert set(granted) == {"key-2", "key-3", "key-4"}
    assert {call["key"] for call in server.calls()} == {"key-1", "key-2", "key-3", "key-4"}
    assert len(server.answered()) == 12 and not server.repeated_prompts()


@pytest.mark.slow
def test_a_new_key_ends_the_wait_of_a_run_that_has_none_left(harness: RunHarness) -> None:
    harness.issue(42)
    server = harness.server(fault={"kind": "429-minute", "key": "key-1", "retry_delay": 600, "times": None})
    harness.keys = ()
    credentials(harness, server.url, "1")
    running = harness.start("--all")
    running.wait_for("All keys rate limited.")
    (harness.home / "credentials.toml").write_text("[[credential]]\nkey = 3\n")
    running.wait_for("The changed credentials cannot be used")
    credentials(harness, server.url, "1", "2")
    done = running.wait()
    assert done.code == 0 and count_lines(done, "Keys are available again") == 1
    assert {call["key"] for call in server.answered()} == {"key-2"}


def test_without_any_key_the_ways_to_add_one_are_listed(harness: RunHarness) -> None:
    harness.issue(42)
    before = sorted(harness.project.rglob("*"))
    done = harness.run("--all")
    assert done.code == 4
    for way in ("GEMINI_API_KEY_1", "agentos keys add", "[[credential]]", "--offline"):
        assert way in done.err
    assert "Traceback" not in done.err
    assert [path for path in sorted(harness.project.rglob("*")) if path not in before] == []


@pytest.mark.slow
def test_a_quarantined_key_is_used_again_when_it_gets_a_new_secret(harness: RunHarness) -> None:
    harness.issues(40, 41, 42)
    server = harness.server("--latency", "0.5,0.5", keys=KEYS[:3])
    harness.keys = ()
    credentials(harness, server.url, "1", "4")
    running = harness.start("--all")
    running.wait_for("key-4 was rejected (400 API_KEY_INVALID)")
    path: Path = harness.home / "credentials.toml"
    text = path.read_text().replace(KEYS[3], KEYS[2])
    draft = harness.root / "draft"
    draft.write_text(text)
    draft.chmod(0o600)
    draft.rename(path)
    done = running.wait()
    assert done.code == 0
    wait_until(lambda: "key-3" in {call["key"] for call in server.answered()}, 1)


@pytest.mark.slow
def test_an_answer_that_does_not_come_is_cut_twice_said_and_failed_with_the_fix(harness: RunHarness) -> None:
    harness.server(keys=KEYS[:2], fault={"kind": "hang", "matching": title_of(1), "times": None})
    harness.issues(1, 2)
    (harness.project / "agentos.toml").write_text("call_timeout = 1\n")
    done = harness.run("--all")
    text = f"{done.out}\n{done.err}"
    assert done.code == 1
    assert text.count("LLD-1: the answer on key-") == 2 and text.count("Asking once more.") == 1
    assert (
        "[LLD-1] FAILED: the answer was cut off 2 times in a row (no token for 1 s; then no token for 1 s)"
        in text
    )
    assert "call_timeout = 900 for key-" in text
    assert "  Cut: 2 answers (LLD-1), no token within call_timeout" in text
    assert "[LLD-2] Approved after 1 review" in text


def test_a_key_whose_sdk_is_missing_is_passed_over_unless_a_role_has_no_other(harness: RunHarness) -> None:
    harness.issues(40, 41)
    harness.server()
    (harness.root / "site").mkdir()
    (harness.root / "site/sitecustomize.py").write_text("import sys\nsys.modules['anthropic'] = None\n")
    env = {"PYTHONPATH": str(harness.root / "site"), "ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"}
    settings = harness.project / "agentos.toml"
    settings.write_text('drafter = "claude-sonnet-4-5"\n')
    refused = harness.run("--all", **env)
    assert refused.code == 3 and "Traceback" not in refused.err
    assert "there is a key for anthropic, but the provider's SDK is not installed" in refused.err
    settings.unlink()
    said = "The anthropic keys are not used, because the provider's SDK is not installed: type pip install"
    doctor = harness.run("doctor", program="agentos", **env)
    assert doctor.code == 0 and [line[:5] for line in doctor.lines if said in line] == ["WARN "], doctor.out
    assert harness.run("40", "--dry-run", **env).out.count(said) == 1
    done = harness.run("40", **env)
    assert done.code == 0 and done.out.count(said) == 1, done.out + done.err
    settings.write_text('drafter = "gemini-2.5-pro"\nreviewer = "gemini-2.5-pro"\n')
    done = harness.run("41", **env)
    assert (done.code, done.err) == (0, "") and said not in done.out
