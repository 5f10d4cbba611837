"""`--json` of the commands that print a list or a state."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .harness import KEYS, PROGRAMS, RunHarness
from .keyrings import credentials, table

RESULTS = {
    "approved",
    "needs_revision",
    "finished",
    "failed",
    "interrupted",
    "parked",
    "held_by_another_run",
    "finished_by_another_run",
    "failed_in_another_run",
}


def read(harness: RunHarness, *words: str, code: int = 0, **env: str) -> dict[str, Any]:
    done = harness.run(*words, "--json", program="agentos", **env)
    assert done.code == code and len(done.lines) == 1, done.out + done.err
    assert not any(secret in done.out for secret in KEYS)
    found: dict[str, Any] = json.loads(done.out)
    return found


@pytest.mark.slow
def test_runs_and_their_comparison_and_the_items_that_wait(harness: RunHarness) -> None:
    assert read(harness, "runs") == {"runs": [], "older": 0}
    harness.issues(40, 41)
    assert harness.run("40", "41", "--offline", "--review", "draft").code == 0
    waiting = read(harness, "review")
    assert waiting["project"] == str(harness.project)
    assert [item["item"] for item in waiting["items"]] == ["LLD-40", "LLD-41"]
    first = waiting["items"][0]
    assert first["workflow"] == "lld" and first["title"] == "Thing 40 can be used" and first["round"] == 1
    assert first["decision"] is first["verdict"] is first["approved"] is None
    assert first["waiting_since"] > 1e9 and (harness.project / first["draft"]).is_file()
    assert harness.run("review", "40", "--approve", program="agentos").code == 0
    decided = {item["item"]: item["decision"] for item in read(harness, "review")["items"]}
    assert decided == {"LLD-40": "approve", "LLD-41": None}
    assert harness.run("40", "--offline").code == 0

    newer, older = read(harness, "runs", "list")["runs"]
    assert newer["state"] == "ended" and newer["exit_code"] == 0 and newer["project"] == str(harness.project)
    assert newer["items"] == 1 and newer["results"].keys() == RESULTS and newer["results"]["approved"] == 1
    assert older["items"] == 2 and older["results"]["parked"] == 2 and older["began"] < newer["began"]
    limited = read(harness, "runs", "list", "--limit", "1")
    assert limited["older"] == 1 and [run["run"] for run in limited["runs"]] == [newer["run"]]

    compared = read(harness, "runs", "compare")
    assert compared["figures"]["run"] == [older["run"], newer["run"]]
    assert compared["figures"]["items"] == [2, 1] and compared["figures"]["approved"] == [0, 1]
    assert compared["figures"]["calls"] == [2, 1] and compared["common_items"] == 1
    assert [row["item"] for row in compared["different"]] == ["LLD-40"]


def test_keys_with_their_states(harness: RunHarness) -> None:
    assert read(harness, "keys") == {"keys": []}
    credentials(harness, "http://127.0.0.1:9", table(1, 'bucket = "team"', "rpm = 5"), table(2))
    assert harness.run("keys", "cooldown", "key-1", "--for", "1h", program="agentos").code == 0
    assert harness.run("keys", "disable", "key-2", program="agentos").code == 0
    first, second = read(harness, "keys", "list")["keys"]
    assert first["name"] == "key-1" and first["provider"] == "gemini" and first["bucket"] == "team"
    assert first["base_url"] == "http://127.0.0.1:9" and first["concurrency"] == 1
    (state,) = first["states"]
    assert state["state"] == "rate limited" and state["until"] > 1e9 and state["models"] == []
    assert first["last_refusal"] == "cooled down by hand"
    assert second["states"] == [{"state": "disabled", "models": [], "until": None}]
    assert second["bucket"] is second["last_refusal"] is None


def test_doctor_says_what_is_ready_and_what_to_fix(harness: RunHarness) -> None:
    harness.issues(40)
    ready = read(harness, "doctor", "--offline")
    assert ready["ready"] is True and ready["project"] == str(harness.project)
    assert all(check["ok"] and check["fix"] is None for check in ready["checks"])
    missing = read(harness, "doctor", code=3)
    (failed,) = [check for check in missing["checks"] if not check["ok"]]
    assert missing["ready"] is False and failed["check"] == "keys" and "agentos keys add" in failed["fix"]


def test_settings_with_their_sources(harness: RunHarness) -> None:
    (harness.project / "agentos.toml").write_text(
        'drafter = ["gpt-5", "gemini-2.5-pro"]\nprices = { "gpt-5" = { input = 100, output = 1000 } }\n'
    )
    settings = read(harness, "config", "show", "--retries", "7")["settings"]
    assert settings["retries"] == {"value": 7, "source": "flag --retries"}
    assert settings["drafter"]["value"] == ["gpt-5", "gemini-2.5-pro"]
    assert settings["drafter"]["source"].endswith("agentos.toml:1")
    not_given = dict.fromkeys(("cache_read", "cache_write", "cache_write_long"))
    assert settings["prices"]["value"] == [{"model": "gpt-5", "input": 100.0, "output": 1000.0, **not_given}]
    assert settings["budget"] == {"value": None, "source": "default"}
    assert settings["project"]["value"] == str(harness.project)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_file_name_that_is_not_utf_8_leaves_the_output_valid(harness: RunHarness, locale: str) -> None:
    harness.issues(40)
    (harness.project / "issues" / os.fsdecode(b"80-\xff.md")).write_text("# Odd\n\nText.\n")
    for words in (["--all", "--dry-run"], ["--all"]):
        command: list[str | Path] = [PROGRAMS / "lld-workflow", *words, "--offline", "--json"]
        env = {**harness.environment(), "LC_ALL": locale}
        done = subprocess.run(
            command, capture_output=True, timeout=60, cwd=harness.project, env=env, check=False
        )
        rows = [json.loads(line) for line in done.stdout.decode("utf-8", "strict").splitlines()]
        assert rows and not any(0xD800 <= ord(character) < 0xE000 for character in str(rows)), done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("keys", "--json", "list"), "agentos keys list --json"),
        (("runs", "--json", "compare"), "agentos runs compare --json"),
        (("review", "LLD-1", "--json"), "without ITEM"),
    ],
)
def test_a_flag_that_would_have_no_effect_is_refused(
    harness: RunHarness, words: tuple[str, ...], says: str
) -> None:
    done = harness.run(*words, program="agentos")
    assert done.code == 2 and says in done.err
