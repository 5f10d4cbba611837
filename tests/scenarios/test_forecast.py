"""The forecast of a dry run, based on earlier runs."""

import json

import pytest

from .harness import RunHarness, snapshot


def forecast_of(harness: RunHarness, *args: object) -> dict[str, object]:
    done = harness.run("--all", "--dry-run", "--json", *args)
    assert done.code == 0, done.err
    found: dict[str, object] = json.loads(done.out.splitlines()[-1])
    assert found["type"] == "forecast"
    return found


def test_the_forecast_is_unknown_before_the_first_run(harness: RunHarness) -> None:
    harness.issues(1, 2)
    unknown = "Forecast: calls ?, tokens ?, cost ?, time ?"
    done = harness.run("--all", "--dry-run")
    assert f"{unknown} (no API key; add one: agentos keys add)" in done.out
    assert done.lines[-1].endswith(
        "] To start the run, leave out --dry-run. It needs an API key, or --offline."
    )
    done = harness.run("--all", "--dry-run", "--offline")
    assert f"{unknown} (available after a first run of lld with --offline in this project)" in done.out
    done = harness.run("--all", "--dry-run", GEMINI_API_KEY="example-key-9f31")
    assert f"{unknown} (available after a first run of lld with keys in this project)" in done.out
    assert forecast_of(harness)["calls"] is None


@pytest.mark.slow
def test_an_unusable_model_is_not_reported_as_a_missing_key(harness: RunHarness) -> None:
    harness.issues(1)
    settings, key = harness.project / "agentos.toml", {"GEMINI_API_KEY": "example-key-9f31"}
    for text, expected in (
        ('drafter = "foo"', "the run would not start: drafter = 'foo': unknown provider"),
        (
            'drafter = "anthropic/x"',
            "drafter = anthropic/x, but there is no anthropic key: type agentos keys add --provider",
        ),
    ):
        settings.write_text(f"{text}\n")
        done = harness.run("--all", "--dry-run", **key)
        assert (
            done.code == (3 if "foo" in text else 0) and expected in done.out and "no API key" not in done.out
        ), done.out
        assert "available after a first run" in harness.run("--all", "--dry-run", "--offline").out
    settings.write_text('drafter = "anthropic/x"\n')
    assert "no API key; add one: agentos keys add" in harness.run("--all", "--dry-run").out


@pytest.mark.slow
def test_after_a_run_the_next_is_forecast_in_calls_tokens_cost_and_time_without_writing(
    harness: RunHarness,
) -> None:
    harness.server("--latency", "0.2,0.2")
    harness.issues(1, 2, 3)
    assert harness.run("--all", "--parallel", 3).code == 0
    fact = harness.summary()
    harness.issues(4, 5, 6)
    before = snapshot(harness.project, harness.home)
    found = forecast_of(harness, "--parallel", 3)
    assert snapshot(harness.project, harness.home) == before
    assert found["calls"] == fact["usage"]["calls"] == 6
    assert found["input_tokens"] == fact["usage"]["input_tokens"]
    assert isinstance(found["seconds"], float) and found["seconds"] >= 0.4
    assert found["earlier_items"] == 3 and found["earlier_runs"] == 1
    output = harness.run("--all", "--parallel", 3, "--dry-run").out
    assert "Forecast: calls 6, tokens " in output and "(based on 3 items of 1 earlier run)" in output
    assert "Bottleneck: " in output and "ne more worker: " in output


@pytest.mark.slow
def test_offline_runs_are_not_used_to_forecast_real_ones(harness: RunHarness) -> None:
    harness.issues(1)
    assert harness.run("--all", "--offline").code == 0
    harness.issues(2)
    assert forecast_of(harness, "--offline")["calls"] == 2
    assert forecast_of(harness)["calls"] is None


@pytest.mark.slow
def test_fewer_keys_than_workers_are_named_as_the_bottleneck(harness: RunHarness) -> None:
    harness.server("--latency", "0.4,0.4", keys=("one-key-for-all-9f31",))
    harness.issues(1, 2, 3, 4)
    assert harness.run("1", "2").code == 0
    found = forecast_of(harness, "--parallel", 3)
    one_more = found["seconds_with_one_more_key"]
    assert isinstance(found["seconds"], float) and isinstance(one_more, float)
    assert one_more < found["seconds"]


@pytest.mark.slow
def test_the_inline_engine_produces_the_same_documents(harness: RunHarness) -> None:
    harness.issues(1, 2)
    done = harness.run("--all", "--parallel", 2, "--offline", AGENTOS_ENGINE="inline")
    assert done.code == 0 and "[LLD-2] >>> Executing: N4_finalize" in done.out
    assert harness.document(1).exists() and harness.document(2).exists() and not harness.databases()
    refused = harness.run("--all", AGENTOS_ENGINE="rocket")
    assert refused.code == 2 and 'choose "process" or "inline"' in refused.err
