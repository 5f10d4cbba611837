"""The campaign's checks see what they are there for: each violation is made up here, beside evidence of a campaign without one."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fleet.chaos.faults import Fault, Injected
from tests.fleet.chaos.invariants import FleetEvidence, Turns, check_promises
from tests.fleet.chaos.observer import Seen

NEXT_ATTEMPT = "{1,1,2}"


def seen(at: float, kind: str, detail: str, other: str = "") -> Seen:
    return Seen(datetime.fromtimestamp(at, UTC), kind, "LLD-1", detail, other)


def call(number: int, started: float, prompt: str = "", **changes: Any) -> dict[str, Any]:
    found = {
        "seq": number,
        "key": "key-1",
        "item": "Thing 1",
        "role": "draft",
        "prompt_sha256": prompt or f"p{number}",
        "started": started,
        "ended": started + 1.0,
        "status": 200,
        "ending": "complete",
    }
    return found | changes


CALLS = [call(number, 100.0 + 2 * number) for number in range(1, 7)]
CLEAN = FleetEvidence(
    items=[1],
    calls=CALLS,
    seen=[
        seen(100, "claim", "{1,1,1}", "vm:1"),
        seen(101, "step", ":0", "c0"),
        seen(114, "document", "docs/lld/active/LLD-001.md", "hash-1"),
        seen(114, "done", "approved"),
        seen(115, "outcome", "finished"),
    ],
    turns={"LLD-1": Turns("COMPLETED", 1, 0, 0)},
    injected=[],
    documents=["LLD-001.md"],
    lineages=["1-lld"],
    said="",
)
LATER = seen(140, "claim", NEXT_ATTEMPT, "vm:2")
KILLED = Injected(Fault.KILL, 105, 105.1, "vm:1")
AGAIN = call(7, 150.0, "p2")


def violated(evidence: FleetEvidence) -> list[str]:
    return [promise for promise, against in check_promises(evidence).items() if against]


def test_a_campaign_without_a_violation_has_none() -> None:
    assert violated(CLEAN) == []


@pytest.mark.parametrize(
    ("evidence", "promise"),
    [
        (replace(CLEAN, documents=[]), "lost"),
        (replace(CLEAN, calls=CALLS[:5]), "lost"),
        (replace(CLEAN, seen=[*CLEAN.seen, seen(120, "outcome", "failed", "{}")]), "failed"),
        (replace(CLEAN, turns={"LLD-1": Turns("RUNNING", 1, 0, 0)}), "failed"),
        (replace(CLEAN, seen=[*CLEAN.seen, seen(120, "done", "approved")]), "done twice"),
        (replace(CLEAN, seen=[*CLEAN.seen, seen(120, "step", ":7", "c7")]), "done twice"),
        (replace(CLEAN, documents=["LLD-001.md", "LLD-001.md"]), "documents twice"),
        (replace(CLEAN, seen=[seen(101, "step", ":0", "other"), *CLEAN.seen]), "finished nodes repeated"),
        (replace(CLEAN, calls=[*CALLS, AGAIN]), "calls repeated without a death"),
        (replace(CLEAN, seen=[*CLEAN.seen, LATER]), "attempts used up without a death"),
        (replace(CLEAN, seen=[*CLEAN.seen, seen(1, "retried", "why")]), "attempts used up without a death"),
        (
            replace(CLEAN, turns={"LLD-1": Turns("COMPLETED", 2, 0, 1)}),
            "attempts used up without a death",
        ),
        (replace(CLEAN, calls=[*CALLS, call(8, 120, status=429)]), "keys over their limit"),
        (replace(CLEAN, calls=[*CALLS, *(call(n, 200) for n in (8, 9, 10))]), "keys over their limit"),
        (replace(CLEAN, said="Traceback (most recent call last):"), "tracebacks"),
    ],
)
def test_a_violation_is_seen(evidence: FleetEvidence, promise: str) -> None:
    assert promise in violated(evidence)


@pytest.mark.parametrize("fault", [KILLED, Injected(Fault.GATEWAY, 105, 106)])
def test_a_death_explains_one_repeated_call_and_no_second(fault: Injected) -> None:
    taken_over = replace(CLEAN, injected=[fault], calls=[*CALLS, AGAIN])
    assert violated(taken_over) == []
    twice = replace(taken_over, calls=[*CALLS, AGAIN, call(8, 160.0, "p2")])
    assert violated(twice) == ["calls repeated without a death"]


@pytest.mark.parametrize(
    "fault",
    [
        Injected(Fault.POSTGRES, 104, 106),
        Injected(Fault.PAUSE, 104, 106, "vm:1"),
        Injected(Fault.KILL, 105, 105.1, "vm:2"),
        Injected(Fault.DRAIN, 105.5, 107, "vm:1"),  # the call has ended before the worker would abandon it
        Injected(Fault.KILL, 200, 201, "vm:1"),
    ],
)
def test_nothing_else_explains_a_repeated_call(fault: Injected) -> None:
    evidence = replace(CLEAN, injected=[fault], calls=[*CALLS, AGAIN])
    assert violated(evidence) == ["calls repeated without a death"]


def test_a_drain_explains_a_call_that_took_longer_than_it_waits() -> None:
    long = [call(2, 104, ended=110.0) if each["seq"] == 2 else each for each in CALLS]
    drained = Injected(Fault.DRAIN, 105, 108, "vm:1")
    assert violated(replace(CLEAN, injected=[drained], calls=[*long, AGAIN])) == []


@pytest.mark.parametrize(
    ("faults", "is_violated"),
    [
        ([KILLED], False),
        ([Injected(Fault.FREEZE, 105, 141, "vm:1")], False),
        ([Injected(Fault.KILL, 105, 106, "vm:3")], True),
        ([Injected(Fault.DRAIN, 105, 106, "vm:1")], True),
        ([Injected(Fault.OUTAGE, 105, 165)], True),
        ([Injected(Fault.KILL, 150, 151, "vm:1")], True),
    ],
)
def test_only_the_death_of_its_machine_explains_the_next_attempt(
    faults: list[Injected], is_violated: bool
) -> None:
    before_it_was_done = [*CLEAN.seen[:2], LATER, *(replace(each, at=LATER.at) for each in CLEAN.seen[2:])]
    evidence = replace(CLEAN, seen=before_it_was_done, injected=faults)
    assert violated(evidence) == (["attempts used up without a death"] if is_violated else [])


def test_attempts_that_nobody_claimed_need_a_death_each() -> None:
    fourth = replace(LATER, detail="{1,1,4}")
    others = [Injected(Fault.KILL, at, at + 1, f"vm:{at}") for at in (110, 120)]
    evidence = replace(CLEAN, seen=[CLEAN.seen[0], fourth, *CLEAN.seen[2:]], injected=[KILLED, *others])
    assert violated(evidence) == []
    assert violated(replace(evidence, injected=[KILLED, others[0]])) == ["attempts used up without a death"]
