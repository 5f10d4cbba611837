"""What becomes of programs whose gateway dies, with an engine that only remembers its orders."""

import queue
from collections.abc import Iterator

import pytest

from agentos.core.protocol import events
from agentos.core.protocol.commands import Command, KillWorker, StartWorker
from agentos.core.protocol.results import Ending, Outcome, failed
from agentos.engines.gateway_events import GatewayAwareEngine

END = None


class Orders:
    """An engine without workers; `coming` is what they would tell."""

    def __init__(self) -> None:
        self.obeyed: list[Command] = []
        self.coming: list[events.EngineEvent | events.WorkerEvent] = []
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def execute(self, command: Command) -> None:
        self.obeyed.append(command)

    def receive(self, timeout: float | None) -> list[events.EngineEvent | events.WorkerEvent]:
        found, self.coming = self.coming, []
        return found

    def wake(self) -> None:
        self._bell.put(None)

    def woken(self) -> None:
        self._bell.get(timeout=10)

    def watch(self, descriptor: int) -> None: ...

    def close(self) -> None: ...


class Gateway:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.words: queue.SimpleQueue[events.Event | None] = queue.SimpleQueue()

    def events(self) -> Iterator[events.Event]:
        while (word := self.words.get()) is not END:
            yield word


class Stand:
    def __init__(self) -> None:
        self.inner, self.gateway = Orders(), Gateway()
        self.engine = GatewayAwareEngine(self.inner, self.gateway.events(), ("a", "b"))

    def say(self, event: events.Event) -> list[object]:
        self.gateway.words.put(event)
        self.inner.woken()
        return [*self.engine.receive(0)]

    def report(self, item: str) -> Outcome:
        self.inner.coming = [events.WorkerReported(item, failed("exit status 1"))]
        (event,) = self.engine.receive(0)
        assert isinstance(event, events.WorkerReported)
        return event.outcome


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.gateway.words.put(END)


def test_a_failure_is_final_unless_the_gateway_died_under_it(stand: Stand) -> None:
    for item in ("a", "b"):
        stand.engine.execute(StartWorker(item, 1, 1))
    assert not stand.report("a").retryable
    stand.inner.coming = [events.WorkerExited("a", "", clean=True)]
    stand.engine.receive(0)
    assert stand.say(events.GatewayExited("killed by SIGKILL")) == [events.GatewayExited("killed by SIGKILL")]
    assert stand.report("b").retryable
    stand.inner.coming = [events.WorkerExited("b", "", clean=True)]
    stand.engine.receive(0)
    stand.say(events.GatewayRestored())
    stand.engine.execute(StartWorker("b", 1, 2))
    assert not stand.report("b").retryable


def test_a_program_that_ended_well_is_not_to_be_tried_again(stand: Stand) -> None:
    stand.engine.execute(StartWorker("a", 1, 1))
    stand.say(events.GatewayExited("killed by SIGKILL"))
    stand.inner.coming = [events.WorkerReported("a", Outcome(Ending.FINISHED))]
    assert stand.engine.receive(0) == [events.WorkerReported("a", Outcome(Ending.FINISHED))]


def test_no_program_starts_while_there_is_no_gateway(stand: Stand) -> None:
    start = StartWorker("a", 1, 1)
    stand.say(events.GatewayExited("killed by SIGKILL"))
    stand.engine.execute(start)
    assert stand.inner.obeyed == []
    stand.say(events.GatewayRestored())
    assert stand.inner.obeyed == [start]
    assert not stand.report("a").retryable


@pytest.mark.parametrize("given_up", [True, False])
def test_what_is_held_back_starts_when_no_gateway_comes_or_its_worker_is_wanted(
    stand: Stand, given_up: bool
) -> None:
    start, kill = StartWorker("a", 1, 1), KillWorker("a")
    stand.say(events.GatewayExited("killed by SIGKILL"))
    stand.engine.execute(start)
    if given_up:
        stand.say(events.GatewayExited("exit status 3", restarting=False))
        assert stand.inner.obeyed == [start]
    else:
        stand.engine.execute(kill)
        assert stand.inner.obeyed == [start, kill]
