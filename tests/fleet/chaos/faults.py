"""The faults of a campaign: planned from a seed, injected in lanes that run side by side, each with proof that it hit."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle, islice

from agentos.fleet.item_workflow import HEARTBEAT_TIMEOUT
from tests.fleet.chaos.cluster import Cluster, WorkerHost

BEYOND_HEARTBEAT = (4.0, 9.0)  # seconds after the heartbeat timeout
SHORT = (1.0, 8.0)  # seconds
OUTAGE = 60.0  # seconds


class Fault(StrEnum):
    KILL = "kill -9 of a worker"
    FREEZE = "freeze beyond the heartbeat timeout"
    PAUSE = "short freeze"
    PARTITION = "partition beyond the heartbeat timeout"
    BLIP = "short partition"
    DRAIN = "SIGTERM"
    POSTGRES = "restart of Postgres"
    CRASH = "crash of Postgres"
    OUTAGE = "Postgres away for 60 s"
    TEMPORAL = "kill -9 and restart of Temporal"
    GATEWAY = "kill -9 and restart of the gateway"
    FOLLOWER = "kill -9 of the follower"


DEATHS = (Fault.KILL, Fault.FREEZE, Fault.PARTITION)
"""After these the machine's items go on elsewhere."""
_OF_A_HOST = (
    *(Fault.KILL, Fault.FREEZE, Fault.DRAIN, Fault.PARTITION, Fault.KILL, Fault.DRAIN),
    *(Fault.PAUSE, Fault.KILL, Fault.DRAIN, Fault.BLIP),
)


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """How many of each; `hosts` is the number for each of the two. Every third restart of Postgres is a crash."""

    hosts: int
    postgres: int
    outages: int
    temporal: int
    gateway: int
    follower: int
    host_faults: tuple[Fault, ...] = _OF_A_HOST

    @property
    def total(self) -> int:
        return 2 * self.hosts + self.postgres + self.outages + self.temporal + self.gateway + self.follower


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault after `pause` seconds; `seconds` is how long it lasts, where that is for us to say."""

    fault: Fault
    pause: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that has happened, in wall-clock time. `machine` is the worker's name for itself; `flaw` says why it does not
    count as what it claims to be."""

    fault: Fault
    began: float
    ended: float
    machine: str = ""
    flaw: str = ""


def plan(seed: int, counts: FaultCounts) -> list[list[Planned]]:
    """The lanes: host 1, host 2, Postgres, the other services. The same for the same seed."""
    rng = random.Random(seed)
    lanes = []
    for offset in (0, 3):
        kinds = list(islice(cycle(counts.host_faults), offset, offset + counts.hosts))
        rng.shuffle(kinds)
        lanes.append([_planned(rng, kind, 2.0, 10.0) for kind in kinds])
    of_postgres = [Fault.CRASH if number % 3 == 2 else Fault.POSTGRES for number in range(counts.postgres)]
    for number in range(counts.outages):
        of_postgres.insert((number + 1) * len(of_postgres) // (counts.outages + 1), Fault.OUTAGE)
    lanes.append([_planned(rng, kind, 5.0, 40.0) for kind in of_postgres])
    others = [Fault.TEMPORAL] * counts.temporal + [Fault.GATEWAY] * counts.gateway
    others += [Fault.FOLLOWER] * counts.follower
    rng.shuffle(others)
    lanes.append([_planned(rng, kind, 10.0, 60.0) for kind in others])
    return lanes


def _planned(rng: random.Random, fault: Fault, low: float, high: float) -> Planned:
    seconds = 0.0
    if fault in (Fault.FREEZE, Fault.PARTITION):
        seconds = HEARTBEAT_TIMEOUT.total_seconds() + rng.uniform(*BEYOND_HEARTBEAT)
    elif fault in (Fault.PAUSE, Fault.BLIP):
        seconds = rng.uniform(*SHORT)
    elif fault is Fault.OUTAGE:
        seconds = OUTAGE
    return Planned(fault, rng.uniform(low, high), seconds)


@dataclass
class FaultInjector:
    """Runs the lanes, each in a thread. `error` is what stopped one of them."""

    cluster: Cluster
    lanes: list[list[Planned]]
    kill_follower: Callable[[], bool]
    deadline: float
    machine: str
    done: list[Injected] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        hosts: list[WorkerHost | None] = [*self.cluster.hosts, None, None]
        self._threads = [
            threading.Thread(target=self._run, args=(lane, host), daemon=True)
            for lane, host in zip(self.lanes, hosts, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(120)

    def counts(self) -> Counter[Fault]:
        return Counter(each.fault for each in self.done if not each.flaw)

    def flaws(self) -> Iterator[str]:
        """Why a fault does not count."""
        yield from (f"{each.fault}: {each.flaw}" for each in self.done if each.flaw)
        yield from (f"a lane broke off: {type(error).__name__}: {error}" for error in self.errors)
        missing = Counter(each.fault for lane in self.lanes for each in lane)
        missing.subtract(each.fault for each in self.done)
        yield from (f"{fault}: {number} not injected" for fault, number in (+missing).items())

    def _run(self, lane: list[Planned], host: WorkerHost | None) -> None:
        try:
            for planned in lane:
                if self.is_over.wait(planned.pause) or time.monotonic() > self.deadline:
                    return
                self.done.append(self._inject(planned, host))
                if host and host.process and host.process.poll() is not None:
                    host.start()
        except BaseException as error:
            self.errors.append(error)

    def _inject(self, planned: Planned, host: WorkerHost | None) -> Injected:
        machine = f"{self.machine}:{host.pid}" if host else ""
        began = time.time()
        flaw = self._on_host(planned, host) if host else self._on_service(planned)
        return Injected(planned.fault, began, time.time(), machine, flaw)

    def _on_host(self, planned: Planned, host: WorkerHost) -> str:
        """What is wrong with it, if anything."""
        assert host.process is not None
        if host.process.poll() is not None:
            return f"the worker had exited with {host.process.returncode}"
        match planned.fault:
            case Fault.KILL:
                host.kill()
                return "" if host.process.returncode == -signal.SIGKILL else "it was not killed"
            case Fault.DRAIN:
                seconds = host.drain()
                return "" if seconds < 12 else f"it took {seconds:.0f} s to exit"
            case Fault.FREEZE | Fault.PAUSE:
                with host.frozen():
                    self.is_over.wait(planned.seconds)
                    return "" if _state(host.pid) == "T" else "it was not frozen"
        before = host.proxy.withheld
        host.proxy.cut()
        try:
            self.is_over.wait(planned.seconds)
        finally:
            host.proxy.heal()
        return "" if host.proxy.withheld > before else "nothing was withheld"

    def _on_service(self, planned: Planned) -> str:
        cluster = self.cluster
        match planned.fault:
            case Fault.POSTGRES | Fault.CRASH | Fault.OUTAGE:
                before = cluster.postgres.pid
                cluster.postgres.stop(signal.SIGQUIT if planned.fault is Fault.CRASH else signal.SIGINT)
                self.is_over.wait(planned.seconds)
                cluster.postgres.start()
                return "" if cluster.postgres.pid != before else "it was not restarted"
            case Fault.TEMPORAL:
                before = cluster.temporal.pid
                cluster.restart_temporal()
                return "" if cluster.temporal.pid != before else "it was not restarted"
            case Fault.GATEWAY:
                before = cluster.fleet.gateway.pid
                cluster.restart_gateway()
                return "" if cluster.fleet.gateway.pid != before else "it was not restarted"
        return "" if self.kill_follower() else "no follower was running"


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
