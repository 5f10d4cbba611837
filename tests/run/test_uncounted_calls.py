"""Answers that a killed run has paid for and kept, but not counted, are counted once by a later run."""

import json
from pathlib import Path

from agentos.core.protocol.codec import EventEncoder, pack
from agentos.core.protocol.events import (
    AnswerRecovered,
    CallCompleted,
    Event,
    LeaseReleased,
    RunEnded,
)
from agentos.core.protocol.ports import ModelResponse, PaidCall
from agentos.core.protocol.results import Usage
from agentos.storage.journal import Journal
from agentos.worker.uncounted_calls import uncounted_calls

USED = Usage(1, 70, 40)
RECOVERED = AnswerRecovered("LLD-1", "run-1", "lease-2", "key-1", "m", USED)


def journal(runs: Path, run: str, *events: Event) -> None:
    (runs / run).mkdir(parents=True)
    written = Journal(runs / run, EventEncoder(lambda text: text), lambda error: None)
    for event in events:
        written.on_event(event, 1.0)
    written.close()


def answers(*leases: str, run: str = "run-1") -> list[str]:
    kept = [ModelResponse("text", "m-001", USED, paid=PaidCall(lease, "key-1", "m", run)) for lease in leases]
    return [json.dumps(pack(response)) for response in kept]


def counted(lease: str) -> tuple[Event, Event]:
    released = LeaseReleased("LLD-1", lease, 1.0, USED)
    return released, CallCompleted("LLD-1", "key-1", "m", USED, 0.1)


def find(runs: Path, kept: list[str], own: str = "run-9") -> list[AnswerRecovered]:
    return uncounted_calls("LLD-1", kept, runs, own)


def test_a_call_that_a_killed_run_did_not_count_is_found_until_a_later_run_counts_it(tmp_path: Path) -> None:
    journal(tmp_path, "run-1", *counted("lease-1"))
    kept = answers("lease-1", "lease-2")
    assert find(tmp_path, kept) == [RECOVERED]
    journal(tmp_path, "run-2", RECOVERED)
    assert find(tmp_path, kept) == []


def test_a_kill_between_the_release_and_the_completed_call_is_noticed(tmp_path: Path) -> None:
    journal(tmp_path, "run-1", *counted("lease-1"), counted("lease-2")[0])
    assert find(tmp_path, answers("lease-1", "lease-2")) == [RECOVERED]


def test_a_run_that_has_ended_has_counted_everything(tmp_path: Path) -> None:
    journal(tmp_path, "run-1", RunEnded(0, 1.0, 0.0))
    assert find(tmp_path, answers("lease-1")) == []


def test_answers_of_this_run_of_pruned_runs_and_of_earlier_versions_are_left_alone(tmp_path: Path) -> None:
    journal(tmp_path, "run-1")
    old = json.dumps(pack(ModelResponse("text", "m", USED)))
    assert (
        find(tmp_path, [*answers("lease-1", run="pruned"), *answers("lease-1", run="run-9"), old, "{"]) == []
    )
