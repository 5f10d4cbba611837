"""Kills an `agentos gateway` at its n-th durable call, while it writes notes for its peers or holds a lease."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.killing import Sweep, check_killed, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.gateway.harness import MODELS, RunningGateway, credentials, gemini_body
from tests.scenarios.harness import ModelServer, RunHarness, RunningCommand, wait_until

CALLS = ("Say something.", "Say more.", "Refuse this.")
COOLDOWN = 300.0  # seconds
REFUSING = {"kind": "429-minute", "matching": "Refuse this", "times": None, "retry_delay": COOLDOWN}
MAX_WAIT = "10s"
ALONE, BESIDE = "alone", "beside another"


def sweep_gateways(
    root: Path, call_numbers: Sequence[int], mode: str, environment: Mapping[str, str] | None = None
) -> Sweep:
    """For each n, kill a gateway with its own key at its n-th durable call; another gateway takes over the key.

    Depending on `mode`, the other gateway starts after the kill or runs alongside from the start.
    """
    keys = {n: f"canary-key-of-gateway-{n:03}" for n in call_numbers}
    with Sweep(f"gateways {mode}").timed() as sweep, RunHarness.open(root) as harness:
        server = harness.server(fault=REFUSING, keys=tuple(keys.values()))
        harness.extra_env = dict(environment or {})
        for position, n in enumerate(call_numbers, 1):
            harness.keys = (keys[n],)
            shim = shim_of(harness, f"gateway-{n}")
            with contextlib.ExitStack() as stack:
                other = stack.enter_context(_open(harness)) if mode == BESIDE else None
                running = _start(harness, **shim.environment(who="gateway", kill_at=n))
                statuses = _call_until_killed(running)
                if shim.kills == 0:
                    break
                sweep.killed(n)
                sweep.violations += check_killed(harness, running, n, [other.running.pid] if other else [])
                other = other or stack.enter_context(_open(harness))
                sweep.violations += _check_takeover(other, server, f"key-{position}", statuses)
        with _open(harness) as last:
            _ask(last, CALLS[0])
        sweep.violations += [*_check_concurrency(server), *_check_day_usage(harness, server, sweep.kills)]
        sweep.violations += [*leftovers(harness), *readable(harness, "keys")]
    return sweep


def _start(harness: RunHarness, **env: Any) -> RunningCommand:
    variables = credentials(harness.urls[-1], harness.keys, "gemini")
    args = ("gateway", "--format", "json", "--max-wait", MAX_WAIT, "--repo", harness.project)
    return harness.start(*args, program="agentos", **{**variables, **env})


@contextlib.contextmanager
def _open(harness: RunHarness) -> Iterator[RunningGateway]:
    gateway = _ready(_start(harness))
    assert gateway, "a gateway does not start without any kill"
    yield gateway
    assert not list(sound("a gateway", gateway.wait())), gateway.stderr


def _ready(running: RunningCommand) -> RunningGateway | None:
    wait_until(lambda: "\n" in running.out or running.process.poll() is not None)
    if not running.out:
        return None
    record = json.loads(running.out)
    return RunningGateway(running, record["url"], record["items"])


def _call_until_killed(running: RunningCommand) -> list[int]:
    """Send calls until the gateway is killed and return the statuses; stop the gateway if it survives."""
    gateway = _ready(running)
    statuses = [status for text in CALLS if (status := _ask(gateway, text))] if gateway else []
    if gateway and running.process.poll() is None:
        gateway.wait()
    return statuses


def _ask(gateway: RunningGateway, text: str) -> int | None:
    """The status of the response; None if there is none."""
    path = f"/gemini/v1beta/models/{MODELS['gemini']}:generateContent"
    with contextlib.suppress(OSError, http.client.HTTPException):
        return gateway.call("POST", path, gemini_body(text), x_goog_api_key=gateway.token).status
    return None


def _check_takeover(
    other: RunningGateway, server: ModelServer, key: str, statuses: list[int]
) -> Iterator[str]:
    """Check that the key is free at once, and that a reported cooldown is respected without another call."""
    before = _call_count(server, key)
    status = _ask(other, CALLS[0])
    calls = _call_count(server, key) - before
    refused = any(call["key"] == key and call["status"] == 429 for call in server.calls())
    if 429 in statuses and (status, calls) != (429, 0):
        yield f"{key}: its cooldown was reported to a client, but another got {status} after {calls} calls"
    elif status != 200 and not (refused and calls == 0):
        yield f"{key}: another gateway did not get it within {MAX_WAIT}, but {status}"


def _call_count(server: ModelServer, key: str) -> int:
    return sum(call["key"] == key for call in server.calls())


def _check_concurrency(server: ModelServer) -> Iterator[str]:
    for key, peak in server.ledger()["max_concurrent"].items():
        if peak > 1:
            yield f"{peak} calls at once with {key}"


def _check_day_usage(harness: RunHarness, server: ModelServer, kills: int) -> Iterator[str]:
    """Check that every answered call counts for the day, plus at most one unsent call per kill."""
    lines = (harness.home / "quota/notes.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in lines if line.endswith("}")]
    refused = {
        (note["run"], note["lease"]) for note in notes if note["type"] == "call_ended" and note["refused"]
    }
    sent = [(note["run"], note["lease"]) for note in notes if note["type"] == "call_started"]
    earlier = sum(hour["calls"] for note in notes if note["type"] == "bucket_usage" for hour in note["hours"])
    counted = earlier + sum(call not in refused for call in sent)
    answered = sum(call["status"] == 200 for call in server.calls())
    if not answered <= counted <= answered + kills:
        yield f"{answered} calls were answered, but {counted} count, after {kills} kills"
