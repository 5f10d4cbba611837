"""The contract of the Engine port, tested on every engine."""

import contextlib
import json
import os
import signal
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
from tests.scenarios.harness import PORTABLE_CALLS

from .workers import APPROVED, async_worker, run_script

REPOSITORY = Path(__file__).parents[2]
Received = list[EngineEvent | WorkerEvent]


def inline(scripts: dict[str, str]) -> Engine:
    return InlineEngine(run_async(async_worker(scripts)), _redact)


def processes(scripts: dict[str, str], *preload: str, **variables: str) -> Engine:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]),
        "PATH": os.defpath,
        **PORTABLE_CALLS,
        **variables,
    }
    spec = WorkerSpec("tests.contracts.workers:main", preload, environment)
    return ProcessEngine(spec, lambda command: json.dumps([command.item, scripts[command.item]]), _redact)


def portable_processes(scripts: dict[str, str]) -> Engine:
    return processes(scripts, AGENTOS_PORTABLE="1")


def slow_processes(scripts: dict[str, str]) -> Engine:
    return processes(scripts, "tests.contracts.slow")


def processes_reported_late(scripts: dict[str, str]) -> Engine:
    return processes(scripts, "tests.contracts.late_parent")


def _redact(text: str) -> str:
    return text.replace("secret", "***")


@pytest.fixture(params=[inline, processes, portable_processes])
def harness(request: pytest.FixtureRequest) -> Iterator["EngineHarness"]:
    harness = EngineHarness(request.param)
    yield harness
    harness.engine.close()


class EngineHarness:
    """An engine whose workers follow the script given for their item."""

    def __init__(self, make: Callable[[dict[str, str]], Engine]) -> None:
        self.scripts: dict[str, str] = {}
        self.engine = make(self.scripts)
        self.received: Received = []

    def start(self, item: str, script: str) -> None:
        self.scripts[item] = script
        self.engine.execute(StartWorker(item, 1, 1))

    def until(self, *kinds: type, item: str = "LLD-1", seconds: float = 20.0) -> Received:
        """Everything received up to the first event of one of these kinds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.engine.receive(0.5):
                self.received.append(event)
            if any(isinstance(event, kinds) and event.item == item for event in self.received):
                return self.received
        raise AssertionError(f"no {kinds} of {item} in {self.received}")

    def of(self, kind: type) -> list[EngineEvent | WorkerEvent]:
        return [event for event in self.received if isinstance(event, kind)]


def test_a_worker_starts_reports_and_exits_in_this_order(harness: EngineHarness) -> None:
    harness.start("LLD-1", "finish")
    received = harness.until(events.WorkerExited)
    assert isinstance(received[0], events.WorkerStarted)
    assert isinstance(received[-1], events.WorkerExited) and received[-1].clean
    assert harness.of(events.WorkerReported) == [events.WorkerReported("LLD-1", APPROVED)]
    assert len(harness.of(events.WorkerExited)) == 1


def test_a_worker_that_is_faster_than_the_fork_server_has_still_started_first() -> None:
    harness = EngineHarness(processes_reported_late)
    with contextlib.closing(harness.engine):
        harness.start("LLD-1", "finish")
        received = harness.until(events.WorkerExited)
    assert isinstance(received[0], events.WorkerStarted) and isinstance(received[-1], events.WorkerExited)


def test_a_task_larger_than_a_socket_buffer_reaches_its_worker(harness: EngineHarness) -> None:
    harness.start("LLD-1", "finish" + " " * 4_000_000)
    harness.until(events.WorkerExited)
    assert harness.of(events.WorkerReported) == [events.WorkerReported("LLD-1", APPROVED)]


def test_output_comes_in_lines_with_secrets_masked(harness: EngineHarness) -> None:
    harness.start("LLD-1", "finish")
    harness.until(events.WorkerExited)
    lines = [event.text for event in harness.received if isinstance(event, events.LineWritten)]
    assert lines == ["one line", "and a *** line"]


def test_leases_reach_the_worker_and_are_released(harness: EngineHarness) -> None:
    harness.start("LLD-1", "call")
    for number in (1, 2):
        harness.received.clear()
        harness.until(events.LeaseRequested)
        (wanted,) = [event for event in harness.received if isinstance(event, events.LeaseRequested)]
        secret = Secret("s" * 20)
        harness.engine.execute(
            GrantLease("LLD-1", wanted.call, f"lease-{number}", "key-1", "gemini", secret, None, None)
        )
    harness.until(events.WorkerExited)
    assert [event.lease for event in harness.received if isinstance(event, events.LeaseReleased)][
        -1
    ] == "lease-2"
    assert events.WorkerReported("LLD-1", APPROVED) in harness.received


def test_a_stopped_worker_reports_its_own_outcome(harness: EngineHarness) -> None:
    harness.start("LLD-1", "stop")
    harness.until(events.LineWritten)
    harness.engine.execute(StopWorker("LLD-1"))
    harness.until(events.WorkerExited)
    assert harness.of(events.WorkerReported) == [events.WorkerReported("LLD-1", Outcome(Ending.INTERRUPTED))]


def test_workers_that_are_stopped_before_they_have_started_are_not_waited_for() -> None:
    """The fork server would import for a minute."""
    harness = EngineHarness(slow_processes)
    with contextlib.closing(harness.engine):
        for item in ("LLD-1", "LLD-2"):
            harness.start(item, "finish")
        started_at = time.monotonic()
        for item in ("LLD-1", "LLD-2"):
            harness.engine.execute(StopWorker(item))
        harness.until(events.WorkerExited, item="LLD-1")
        harness.until(events.WorkerExited, item="LLD-2")
        assert time.monotonic() - started_at < 10
    for item in ("LLD-1", "LLD-2"):
        assert events.WorkerReported(item, Outcome(Ending.INTERRUPTED)) in harness.received
    assert all(
        event.clean for event in harness.of(events.WorkerExited) if isinstance(event, events.WorkerExited)
    )
    assert not harness.of(events.WorkerStarted)


def test_a_worker_is_waited_for_even_if_another_is_stopped_early() -> None:
    harness = EngineHarness(processes)
    with contextlib.closing(harness.engine):
        harness.start("LLD-1", "finish")
        harness.start("LLD-2", "finish")
        harness.engine.execute(StopWorker("LLD-1"))
        harness.until(events.WorkerExited, item="LLD-2")
    assert events.WorkerReported("LLD-2", APPROVED) in harness.received


def test_a_killed_worker_ends_soon_and_reports_nothing(harness: EngineHarness) -> None:
    harness.start("LLD-1", "hang")
    harness.until(events.LineWritten)
    started_at = time.monotonic()
    harness.engine.execute(KillWorker("LLD-1"))
    harness.engine.execute(KillWorker("LLD-1"))
    received = harness.until(events.WorkerExited)
    assert time.monotonic() - started_at < 10
    assert not harness.of(events.WorkerReported) and len(harness.of(events.WorkerExited)) == 1
    assert isinstance(received[-1], events.WorkerExited) and not received[-1].clean


@pytest.mark.parametrize("make", [processes, portable_processes])
def test_a_fork_server_that_does_not_answer_is_killed_with_all_workers_that_are_to_be_killed(
    make: Callable[[dict[str, str]], Engine],
) -> None:
    harness = EngineHarness(make)
    with contextlib.closing(harness.engine):
        harness.start("LLD-1", "show the parent")
        harness.start("LLD-2", "hang")
        harness.until(events.LineWritten, item="LLD-1")
        harness.until(events.LineWritten, item="LLD-2")
        (line,) = [
            event.text
            for event in harness.received
            if isinstance(event, events.LineWritten) and event.item == "LLD-1"
        ]
        os.kill(int(line), signal.SIGSTOP)
        for item in ("LLD-1", "LLD-2"):
            harness.engine.execute(KillWorker(item))
        harness.until(events.WorkerExited, item="LLD-1")
        harness.until(events.WorkerExited, item="LLD-2")
        harness.start("LLD-3", "finish")
        harness.until(events.WorkerExited, item="LLD-3")
    assert events.WorkerReported("LLD-3", APPROVED) in harness.received


def test_a_crash_affects_only_its_own_item(harness: EngineHarness) -> None:
    harness.start("LLD-1", "crash")
    harness.start("LLD-2", "finish")
    harness.until(events.WorkerExited, item="LLD-1")
    harness.until(events.WorkerExited, item="LLD-2")
    ends = {event.item: event.clean for event in harness.received if isinstance(event, events.WorkerExited)}
    assert ends == {"LLD-1": False, "LLD-2": True}
    assert [event.item for event in harness.received if isinstance(event, events.WorkerReported)] == ["LLD-2"]


def test_events_about_another_item_are_dropped(harness: EngineHarness) -> None:
    harness.start("LLD-1", "lie")
    harness.until(events.WorkerExited)
    assert harness.of(events.NodeStarted) == [events.NodeStarted("LLD-1", "N1_design", 1)]


def test_an_item_can_be_started_again_after_it_ended(harness: EngineHarness) -> None:
    for script in ("crash", "finish"):
        harness.received.clear()
        harness.start("LLD-1", script)
        harness.until(events.WorkerExited)
    assert events.WorkerReported("LLD-1", APPROVED) in harness.received


def test_receive_without_events_returns_after_its_timeout(harness: EngineHarness) -> None:
    started_at = time.monotonic()
    assert harness.engine.receive(0.05) == []
    assert 0.04 < time.monotonic() - started_at < 5.0


def test_wake_from_another_thread_ends_a_wait(harness: EngineHarness) -> None:
    threading.Timer(0.05, harness.engine.wake).start()
    started_at = time.monotonic()
    harness.engine.receive(30.0)
    assert time.monotonic() - started_at < 10


def test_commands_for_a_worker_that_is_gone_are_ignored(harness: EngineHarness) -> None:
    for command in (StopWorker("LLD-1"), KillWorker("LLD-1")):
        harness.engine.execute(command)
    harness.start("LLD-1", "finish")
    harness.until(events.WorkerExited)


# Threads only.


def test_work_that_cannot_be_cancelled_is_abandoned_and_its_events_dropped() -> None:
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


def test_closing_cancels_running_work() -> None:
    engine = InlineEngine(
        run_async(lambda command, channel: run_script("hang", command.item, channel, channel.write_output))
    )
    engine.execute(StartWorker("LLD-1", 1, 1))
    while not any(isinstance(event, events.LineWritten) for event in engine.receive(5.0)):
        pass
    engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "LLD-1"]
