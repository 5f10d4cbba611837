"""How exec items fare when their gateway dies, with an engine that only records its commands."""

import queue
from collections.abc import Iterator

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, KillWorker, StartWorker
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.engines.gateway_events import GatewayAwareEngine

END = None


class RecordingEngine:
    """An engine without workers; `pending` is what `receive` returns next."""

    def __init__(self) -> None:
        self.executed: list[Command] = []
        self.pending: list[events.EngineEvent | events.WorkerEvent] = []
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def execute(self, command: Command) -> None:
        self.executed.append(command)

    def receive(self, timeout: float | None) -> list[events.EngineEvent | events.WorkerEvent]:
        found, self.pending = self.pending, []
        return found

    def wake(self) -> None:
        self._wakeups.put(None)

    def wait_until_woken(self) -> None:
        self._wakeups.get(timeout=10)

    def watch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


class ScriptedGateway:
    """Emits the events that it is given."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[events.Event | None] = queue.SimpleQueue()

    def events(self) -> Iterator[events.Event]:
        while (event := self.queue.get()) is not END:
            yield event


class GatewayHarness:
    def __init__(self) -> None:
        self.inner, self.gateway = RecordingEngine(), ScriptedGateway()
        self.engine = GatewayAwareEngine(self.inner, self.gateway.events(), ("a", "b"))

    def emit(self, event: events.Event) -> list[object]:
        self.gateway.queue.put(event)
        self.inner.wait_until_woken()
        return [*self.engine.receive(0)]

    def report(self, item: str) -> Outcome:
        self.inner.pending = [events.WorkerReported(item, failed("exit status 1"))]
        (event,) = self.engine.receive(0)
        assert isinstance(event, events.WorkerReported)
        return event.outcome


@pytest.fixture
def harness() -> Iterator[GatewayHarness]:
    harness = GatewayHarness()
    yield harness
    harness.gateway.queue.put(END)


def test_a_failure_is_final_unless_the_gateway_died_during_it(harness: GatewayHarness) -> None:
    for item in ("a", "b"):
        harness.engine.execute(StartWorker(item, 1, 1))
    assert not harness.report("a").retryable
    harness.inner.pending = [events.WorkerExited("a", "", clean=True)]
    harness.engine.receive(0)
    assert harness.emit(events.GatewayExited("killed by SIGKILL")) == [
        events.GatewayExited("killed by SIGKILL")
    ]
    assert harness.report("b").retryable
    harness.inner.pending = [events.WorkerExited("b", "", clean=True)]
    harness.engine.receive(0)
    harness.emit(events.GatewayRestored())
    harness.engine.execute(StartWorker("b", 1, 2))
    assert not harness.report("b").retryable


def test_a_program_that_succeeded_is_not_retried(harness: GatewayHarness) -> None:
    harness.engine.execute(StartWorker("a", 1, 1))
    harness.emit(events.GatewayExited("killed by SIGKILL"))
    harness.inner.pending = [events.WorkerReported("a", Outcome(Ending.FINISHED))]
    assert harness.engine.receive(0) == [events.WorkerReported("a", Outcome(Ending.FINISHED))]


def test_no_program_starts_while_the_gateway_is_down(harness: GatewayHarness) -> None:
    start = StartWorker("a", 1, 1)
    harness.emit(events.GatewayExited("killed by SIGKILL"))
    harness.engine.execute(start)
    assert harness.inner.executed == []
    harness.emit(events.GatewayRestored())
    assert harness.inner.executed == [start]
    assert not harness.report("a").retryable


@pytest.mark.parametrize("given_up", [True, False])
def test_held_starts_are_released_when_the_gateway_is_given_up_or_another_command_follows(
    harness: GatewayHarness, given_up: bool
) -> None:
    start, kill = StartWorker("a", 1, 1), KillWorker("a")
    harness.emit(events.GatewayExited("killed by SIGKILL"))
    harness.engine.execute(start)
    if given_up:
        harness.emit(events.GatewayExited("exit status 3", restarting=False))
        assert harness.inner.executed == [start]
    else:
        harness.engine.execute(kill)
        assert harness.inner.executed == [start, kill]
