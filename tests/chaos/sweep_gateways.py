"""SIGKILL at the n-th durable call of an `agentos gateway`: its notes for the others, and its leases."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.killing import Sweep, check_killed, readable, shim_of, sound
from tests.chaos.leftovers import leftovers
from tests.gateway.staging import MODELS, RunningGateway, credentials, gemini_body
from tests.scenarios.harness import ModelServer, RunHarness, RunningCommand, wait_until

CALLS = ("Say something.", "Say more.", "Refuse this.")
REST = 300.0
REFUSING = {"kind": "429-minute", "matching": "Refuse this", "times": None, "retry_delay": REST}
PATIENCE = "10s"
ALONE, BESIDE = "alone", "beside another"


def sweep_gateways(
    root: Path, places: Sequence[int], manner: str, environment: Mapping[str, str] | None = None
) -> Sweep:
    """A gateway with a key of its own for each n, killed at its n-th durable call; another one takes the key over.

    That other one is started when the first is dead, or lives beside it.
    """
    keys = {n: f"canary-key-of-gateway-{n:03}" for n in places}
    with Sweep(f"gateways {manner}").timed() as sweep, RunHarness.open(root) as harness:
        server = harness.server(fault=REFUSING, keys=tuple(keys.values()))
        harness.extra_env = dict(environment or {})
        for place, n in enumerate(places, 1):
            harness.keys = (keys[n],)
            shim = shim_of(harness, f"gateway-{n}")
            with contextlib.ExitStack() as stack:
                other = stack.enter_context(_open(harness)) if manner == BESIDE else None
                running = _start(harness, **shim.environment(who="gateway", kill_at=n))
                told = _use(running)
                if shim.kills == 0:
                    break
                sweep.killed(n)
                sweep.violations += check_killed(harness, running, n, [other.running.pid] if other else [])
                other = other or stack.enter_context(_open(harness))
                sweep.violations += _taken_over(other, server, f"key-{place}", told)
        with _open(harness) as last:
            _ask(last, CALLS[0])
        sweep.violations += [*_crowded(server), *_counted(harness, server, sweep.kills)]
        sweep.violations += [*leftovers(harness), *readable(harness, "keys")]
    return sweep


def _start(harness: RunHarness, **env: Any) -> RunningCommand:
    given = credentials(harness.urls[-1], harness.keys, "gemini")
    words = ("gateway", "--format", "json", "--max-wait", PATIENCE, "--repo", harness.project)
    return harness.start(*words, program="agentos", **{**given, **env})


@contextlib.contextmanager
def _open(harness: RunHarness) -> Iterator[RunningGateway]:
    gate = _ready(_start(harness))
    assert gate, "a gateway that nobody kills does not start"
    yield gate
    assert not list(sound("a gateway", gate.wait())), gate.stderr


def _ready(running: RunningCommand) -> RunningGateway | None:
    wait_until(lambda: "\n" in running.out or running.process.poll() is not None)
    if not running.out:
        return None
    record = json.loads(running.out)
    return RunningGateway(running, record["url"], record["items"])


def _use(running: RunningCommand) -> list[int]:
    """What its clients are told, one after the other, as long as it lives; then it is ended, if it still does."""
    gate = _ready(running)
    told = [status for text in CALLS if (status := _ask(gate, text))] if gate else []
    if gate and running.process.poll() is None:
        gate.wait()
    return told


def _ask(gate: RunningGateway, text: str) -> int | None:
    """None if there is no answer."""
    path = f"/gemini/v1beta/models/{MODELS['gemini']}:generateContent"
    with contextlib.suppress(OSError, http.client.HTTPException):
        return gate.call("POST", path, gemini_body(text), x_goog_api_key=gate.token).status
    return None


def _taken_over(other: RunningGateway, server: ModelServer, key: str, told: list[int]) -> Iterator[str]:
    """The key is free at once; a refusal that a client was told of is known, and costs no call."""
    seen = _seen(server, key)
    status = _ask(other, CALLS[0])
    asked = _seen(server, key) - seen
    refused = any(call["key"] == key and call["status"] == 429 for call in server.calls())
    if 429 in told and (status, asked) != (429, 0):
        yield f"{key}: its rest was told to a client, and another is told {status} after {asked} calls"
    elif status != 200 and not (refused and asked == 0):
        yield f"{key}: another gateway has not got it in {PATIENCE}, but {status}"


def _seen(server: ModelServer, key: str) -> int:
    return sum(call["key"] == key for call in server.calls())


def _crowded(server: ModelServer) -> Iterator[str]:
    for key, most in server.ledger()["max_concurrent"].items():
        if most > 1:
            yield f"{most} calls at once with {key}"


def _counted(harness: RunHarness, server: ModelServer, kills: int) -> Iterator[str]:
    """Every call that was answered counts for its day; of each death, one at most that was not sent."""
    lines = (harness.home / "quota/notes.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in lines if line.endswith("}")]
    refused = {
        (note["run"], note["lease"]) for note in notes if note["type"] == "call_ended" and note["refused"]
    }
    sent = [(note["run"], note["lease"]) for note in notes if note["type"] == "call_started"]
    earlier = sum(hour["calls"] for note in notes if note["type"] == "bucket_usage" for hour in note["hours"])
    counted = earlier + sum(one not in refused for one in sent)
    answered = sum(call["status"] == 200 for call in server.calls())
    if not answered <= counted <= answered + kills:
        yield f"{answered} calls were answered, and {counted} count, with {kills} deaths"
