"""What every engine promises its coordinator, shown on each of them."""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import GrantLease, KillWorker, StartWorker, StopWorker
from agentos.core.protocol.events import EngineEvent, WorkerEvent
from agentos.core.protocol.ports import Engine
from agentos.core.protocol.results import Ending, Outcome
from agentos.core.text.secrets import Secret
from agentos.engines.inline import InlineEngine, run_async
from agentos.engines.process import ProcessEngine
from agentos.engines.template_client import WorkerSpec

from .workers import APPROVED, behave, work

REPOSITORY = Path(__file__).parents[2]
Told = list[EngineEvent | WorkerEvent]


def inline(words: dict[str, str]) -> Engine:
    return InlineEngine(run_async(work(words)), _masked)


def processes(words: dict[str, str], *preload: str) -> Engine:
    environment = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]), "PATH": os.defpath}
    spec = WorkerSpec("tests.contracts.workers:main", preload, environment)
    return ProcessEngine(spec, lambda order: json.dumps([order.item, words[order.item]]), _masked)


def slow_processes(words: dict[str, str]) -> Engine:
    return processes(words, "tests.contracts.slow")


def processes_reported_late(words: dict[str, str]) -> Engine:
    return processes(words, "tests.contracts.late_parent")


def _masked(text: str) -> str:
    return text.replace("secret", "***")


@pytest.fixture(params=[inline, processes])
def stage(request: pytest.FixtureRequest) -> Iterator["Stage"]:
    stage = Stage(request.param)
    yield stage
    stage.engine.close()


class Stage:
    """An engine with workers that do as their word says."""

    def __init__(self, make: Callable[[dict[str, str]], Engine]) -> None:
        self.words: dict[str, str] = {}
        self.engine = make(self.words)
        self.told: Told = []

    def start(self, item: str, word: str) -> None:
        self.words[item] = word
        self.engine.execute(StartWorker(item, 1, 1))

    def until(self, *kinds: type, item: str = "LLD-1", seconds: float = 20.0) -> Told:
        """Everything told up to the first event of a kind."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.engine.receive(0.5):
                self.told.append(event)
            if any(isinstance(event, kinds) and event.item == item for event in self.told):
                return self.told
        raise AssertionError(f"no {kinds} of {item} in {self.told}")

    def of(self, kind: type) -> list[EngineEvent | WorkerEvent]:
        return [event for event in self.told if isinstance(event, kind)]


def test_a_worker_starts_speaks_reports_and_ends_in_this_order(stage: Stage) -> None:
    stage.start("LLD-1", "finish")
    told = stage.until(events.WorkerExited)
    assert isinstance(told[0], events.WorkerStarted)
    assert isinstance(told[-1], events.WorkerExited) and told[-1].clean
    assert stage.of(events.WorkerReported) == [events.WorkerReported("LLD-1", APPROVED)]
    assert len(stage.of(events.WorkerExited)) == 1


def test_a_worker_that_is_faster_than_the_fork_server_has_still_started_first() -> None:
    stage = Stage(processes_reported_late)
    with contextlib.closing(stage.engine):
        stage.start("LLD-1", "finish")
        told = stage.until(events.WorkerExited)
    assert isinstance(told[0], events.WorkerStarted) and isinstance(told[-1], events.WorkerExited)


def test_output_comes_in_lines_with_secrets_masked(stage: Stage) -> None:
    stage.start("LLD-1", "finish")
    stage.until(events.WorkerExited)
    lines = [event.text for event in stage.told if isinstance(event, events.LineWritten)]
    assert lines == ["one line", "and a *** line"]


def test_leases_reach_the_worker_and_come_back(stage: Stage) -> None:
    stage.start("LLD-1", "call")
    for number in (1, 2):
        stage.told.clear()
        stage.until(events.LeaseRequested)
        (wanted,) = [event for event in stage.told if isinstance(event, events.LeaseRequested)]
        secret = Secret("s" * 20)
        stage.engine.execute(
            GrantLease("LLD-1", wanted.call, f"lease-{number}", "key-1", "gemini", secret, None, None)
        )
    stage.until(events.WorkerExited)
    assert [event.lease for event in stage.told if isinstance(event, events.LeaseReleased)][-1] == "lease-2"
    assert events.WorkerReported("LLD-1", APPROVED) in stage.told


def test_a_stopped_worker_ends_with_its_own_word(stage: Stage) -> None:
    stage.start("LLD-1", "stop")
    stage.until(events.LineWritten)
    stage.engine.execute(StopWorker("LLD-1"))
    stage.until(events.WorkerExited)
    assert stage.of(events.WorkerReported) == [events.WorkerReported("LLD-1", Outcome(Ending.INTERRUPTED))]


def test_workers_that_are_stopped_before_they_are_there_are_not_waited_for() -> None:
    """What is loaded for them would take a minute."""
    stage = Stage(slow_processes)
    with contextlib.closing(stage.engine):
        for item in ("LLD-1", "LLD-2"):
            stage.start(item, "finish")
        began = time.monotonic()
        for item in ("LLD-1", "LLD-2"):
            stage.engine.execute(StopWorker(item))
        stage.until(events.WorkerExited, item="LLD-1")
        stage.until(events.WorkerExited, item="LLD-2")
        assert time.monotonic() - began < 10
    for item in ("LLD-1", "LLD-2"):
        assert events.WorkerReported(item, Outcome(Ending.INTERRUPTED)) in stage.told
    assert all(
        event.clean for event in stage.of(events.WorkerExited) if isinstance(event, events.WorkerExited)
    )
    assert not stage.of(events.WorkerStarted)


def test_a_worker_that_is_wanted_is_waited_for_though_another_is_stopped_early() -> None:
    stage = Stage(processes)
    with contextlib.closing(stage.engine):
        stage.start("LLD-1", "finish")
        stage.start("LLD-2", "finish")
        stage.engine.execute(StopWorker("LLD-1"))
        stage.until(events.WorkerExited, item="LLD-2")
    assert events.WorkerReported("LLD-2", APPROVED) in stage.told


def test_a_killed_worker_ends_soon_and_reports_nothing(stage: Stage) -> None:
    stage.start("LLD-1", "hang")
    stage.until(events.LineWritten)
    began = time.monotonic()
    stage.engine.execute(KillWorker("LLD-1"))
    stage.engine.execute(KillWorker("LLD-1"))
    told = stage.until(events.WorkerExited)
    assert time.monotonic() - began < 10
    assert not stage.of(events.WorkerReported) and len(stage.of(events.WorkerExited)) == 1
    assert isinstance(told[-1], events.WorkerExited) and not told[-1].clean


def test_a_crash_ends_its_own_item_alone(stage: Stage) -> None:
    stage.start("LLD-1", "crash")
    stage.start("LLD-2", "finish")
    stage.until(events.WorkerExited, item="LLD-1")
    stage.until(events.WorkerExited, item="LLD-2")
    ends = {event.item: event.clean for event in stage.told if isinstance(event, events.WorkerExited)}
    assert ends == {"LLD-1": False, "LLD-2": True}
    assert [event.item for event in stage.told if isinstance(event, events.WorkerReported)] == ["LLD-2"]


def test_a_worker_speaks_for_its_own_item_alone(stage: Stage) -> None:
    stage.start("LLD-1", "lie")
    stage.until(events.WorkerExited)
    assert stage.of(events.NodeStarted) == [events.NodeStarted("LLD-1", "N1_design", 1)]


def test_an_item_may_be_started_again_after_its_end(stage: Stage) -> None:
    for word in ("crash", "finish"):
        stage.told.clear()
        stage.start("LLD-1", word)
        stage.until(events.WorkerExited)
    assert events.WorkerReported("LLD-1", APPROVED) in stage.told


def test_nothing_to_tell_takes_no_longer_than_the_time_given(stage: Stage) -> None:
    began = time.monotonic()
    assert stage.engine.receive(0.05) == []
    assert 0.04 < time.monotonic() - began < 5.0


def test_waking_ends_a_wait_from_another_thread(stage: Stage) -> None:
    threading.Timer(0.05, stage.engine.wake).start()
    began = time.monotonic()
    stage.engine.receive(30.0)
    assert time.monotonic() - began < 10


def test_commands_for_a_worker_that_is_gone_do_no_harm(stage: Stage) -> None:
    for command in (StopWorker("LLD-1"), KillWorker("LLD-1")):
        stage.engine.execute(command)
    stage.start("LLD-1", "finish")
    stage.until(events.WorkerExited)


# What is true of threads alone.


def test_work_that_cannot_be_cancelled_is_given_up_on_and_not_heard_any_more() -> None:
    free = threading.Event()

    def stubborn(command: StartWorker, channel: object) -> Outcome:
        free.wait(30)
        return APPROVED

    with contextlib.closing(InlineEngine(stubborn)) as engine:
        engine.execute(StartWorker("LLD-1", 1, 1))
        (started,) = engine.receive(5.0)
        engine.execute(KillWorker("LLD-1"))
        (ended,) = engine.receive(5.0)
        assert isinstance(started, events.WorkerStarted)
        assert isinstance(ended, events.WorkerExited) and "abandoned" in ended.cause
        free.set()
        assert engine.receive(0.2) == []


def test_closing_cancels_what_is_still_at_work() -> None:
    engine = InlineEngine(
        run_async(lambda command, channel: behave("hang", command.item, channel, channel.write_output))
    )
    engine.execute(StartWorker("LLD-1", 1, 1))
    while not any(isinstance(event, events.LineWritten) for event in engine.receive(5.0)):
        pass
    engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "LLD-1"]
