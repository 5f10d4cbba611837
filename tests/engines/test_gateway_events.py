"""How exec items fare when their gateway dies, with an engine that only records its commands."""

import queue
from collections.abc import Iterator

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, KillWorker, StartWorker
from agentos.core.protocol.results import Ending, Outcome, Usage, failed
from agentos.engines.gateway_events import SETTLE_DEADLINE, CallsSettled, GatewayAwareEngine

END = None


class RecordingEngine:
    """An engine without workers; `pending` is what `receive` returns next."""

    def __init__(self) -> None:
        self.executed: list[Command] = []
        self.pending: list[events.EngineEvent | events.WorkerEvent] = []
        self.timeouts: list[float | None] = []
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def execute(self, command: Command) -> None:
        self.executed.append(command)

    def receive(self, timeout: float | None) -> list[events.EngineEvent | events.WorkerEvent]:
        self.timeouts.append(timeout)
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
        self.queue: queue.SimpleQueue[events.Event | CallsSettled | None] = queue.SimpleQueue()

    def events(self) -> Iterator[events.Event | CallsSettled]:
        while (event := self.queue.get()) is not END:
            yield event


class GatewayHarness:
    def __init__(self) -> None:
        self.inner, self.gateway = RecordingEngine(), ScriptedGateway()
        self.asked: list[str] = []
        self.answers = False
        self.now = 100.0
        self.engine = GatewayAwareEngine(
            self.inner, self.gateway.events(), ("a", "b"), self._settle, lambda: self.now
        )

    def _settle(self, item: str) -> bool:
        self.asked.append(item)
        return self.answers

    def exit(self, item: str) -> list[object]:
        """The item's worker exits."""
        self.inner.pending = [events.WorkerExited(item, "exit status 0", clean=True)]
        return [*self.engine.receive(0)]

    def emit(self, event: events.Event | CallsSettled) -> list[object]:
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


def test_the_end_of_a_program_is_held_until_its_calls_are_counted(harness: GatewayHarness) -> None:
    harness.answers = True
    harness.engine.execute(StartWorker("a", 1, 1))
    assert harness.exit("a") == [] and harness.asked == ["a"]
    call = events.CallCompleted("a", "key-1", "m", Usage(1, 10, 5), 0.1)
    harness.gateway.queue.put(call)
    found = harness.emit(CallsSettled("a"))
    found = found if len(found) == 3 else [*found, *harness.engine.receive(0)]
    assert isinstance(found[0], events.LeaseReleased) and found[1] == call
    assert isinstance(found[2], events.WorkerExited)


def test_a_gateway_that_does_not_answer_holds_the_end_of_a_program_for_a_short_time_only(
    harness: GatewayHarness,
) -> None:
    harness.answers = True
    harness.engine.execute(StartWorker("a", 1, 1))
    assert harness.exit("a") == []
    assert harness.engine.receive(None) == [] and harness.inner.timeouts[-1] == SETTLE_DEADLINE
    harness.now += SETTLE_DEADLINE
    (event,) = harness.engine.receive(60)
    assert isinstance(event, events.WorkerExited) and harness.inner.timeouts[-1] == 0
    assert harness.emit(CallsSettled("a")) == [], "a late answer changes nothing"


def test_a_gateway_that_dies_holds_no_program_back(harness: GatewayHarness) -> None:
    harness.answers = True
    harness.engine.execute(StartWorker("a", 1, 1))
    harness.engine.execute(StartWorker("b", 2, 1))
    assert harness.exit("a") == []
    found = harness.emit(events.GatewayExited("killed by SIGKILL"))
    assert [type(event) for event in found] == [events.WorkerExited, events.GatewayExited]
    assert [type(event) for event in harness.exit("b")] == [events.WorkerExited] and harness.asked == ["a"]
