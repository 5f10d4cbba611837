"""A large fleet on the virtual clock: `make simulate-fleet`, or a part of it with `--share 0.01`."""

import argparse
import gc
import time
from collections import Counter
from dataclasses import dataclass
from random import Random

from agentos.core.planning.submission import SharedTask, thread_id
from agentos.core.protocol.results import Ending
from agentos.core.quota.credentials import Credential
from agentos.core.ratelimit.limits import Dimension, Rate
from agentos.core.text.secrets import Secret
from agentos.fleet.item_workflow import ItemStart
from agentos.offline.rate_windows import WindowKind
from agentos.storage.peer_log import NoPeers

from .gateway import Gateway, Providers
from .network import Machine
from .postgres import ItemRow, Postgres
from .stores import PROJECT
from .surroundings import Surroundings, Work
from .temporal import Temporal
from .virtual_time import new_loop
from .worker import SimulatedWorker

WORKERS, KEYS, ITEMS = 1_000, 10_000, 1_000_000
PARALLEL = 10  # items of a worker
LIMIT, WINDOW = 6, 60.0  # calls of a key in so many seconds
CALL_SECONDS = (2.0, 4.0)
FAULT_INTERVAL = 4.0  # seconds between two faults, in a fleet of 1,000 workers
PROGRESS_INTERVAL = 60.0  # seconds of the virtual clock
START = 1000.0
PROBES = 1  # calls that the pool sends beyond a limit, to find out how the provider counts
AIM = 0.97


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """What a large life came to."""

    items: int
    seconds: float
    limit_share: float
    lost: int
    twice: int
    over_limit: int
    repeated: int
    attempts: int
    faults: Counter[str]
    cpu_seconds: float

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice) and self.over_limit <= PROBES and self.limit_share >= AIM

    def text(self) -> str:
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.items:,} items in {self.seconds:,.0f} s of virtual time: {self.limit_share:.3f} of the physical limit; "
            f"lost {self.lost}, done twice {self.twice}, calls over a limit {self.over_limit}, repeated {self.repeated}\n"
            f"{self.attempts:,} attempts; faults: {faults}; {self.cpu_seconds:,.0f} s of CPU time "
            f"({self.cpu_seconds / self.items * 1000:.2f} ms per item)"
        )


class LargeLife:
    """Workers are killed, frozen, cut off and drained all the time; each killed or drained one is replaced."""

    def __init__(self, workers: int, keys: int, items: int, seed: int = 1, *, tells: bool = False) -> None:
        self._tells = tells
        self.random = Random(seed)
        self.loop = new_loop(START)
        self._counts = (workers, keys, items)
        self._workers: list[SimulatedWorker] = []
        self._faults: Counter[str] = Counter()

    def run(self) -> ScaleResult:
        began = time.process_time()
        try:
            self.loop.run(self._live())
        finally:
            gc.enable()
        return self._result(time.process_time() - began)

    async def _live(self) -> None:
        workers, keys, items = self._counts
        random = self.random
        self.postgres = Postgres(random)
        self.postgres.keeps_events = False
        self.temporal = Temporal()
        over = self.temporal.over = self.loop.create_future()
        self.providers = Providers(random, CALL_SECONDS)
        credentials = []
        for number in range(1, keys + 1):
            self.providers.add_key(name := f"key-{number}", WindowKind.SLIDING, LIMIT, WINDOW)
            secret = Secret(f"the secret of key {number}")
            rates = ((Dimension.REQUESTS, Rate(LIMIT, WINDOW)),)
            credentials.append(Credential(name, "gemini", secret, concurrency=1, rates=rates))
        self.gateway = Gateway(credentials, self.providers, random.random, 60.0, NoPeers())
        work = Work(random, nodes=1, parallel=PARALLEL, heartbeat_interval=10.0)
        shared = SharedTask(PROJECT, "lld", 1, 2, 1800.0, (), (), ())
        # Nearly nothing is garbage in cycles, and looking for it would be half of the work.
        gc.disable()
        self._around = Surroundings(work, self.postgres, self.temporal, self.gateway, shared)
        for number in range(1, items + 1):
            item = f"LLD-{number}"
            self.postgres.rows[thread_id(PROJECT, item)] = ItemRow(item, 1)
            self.temporal.submit(ItemStart(PROJECT, item, 1, 2, "q"))
        for _ in range(workers):
            self._add_worker()
        self.loop.call_later(PROGRESS_INTERVAL, self._tell)
        self.loop.call_later(FAULT_INTERVAL, self._fault)
        await over

    def _tell(self) -> None:
        if self._tells:
            done = self._counts[2] - self.temporal.open
            print(
                f"{self.loop.time() - START:7,.0f} s: {done:9,} items done, {time.process_time():7,.0f} s of CPU time",
                flush=True,
            )
        self.loop.call_later(PROGRESS_INTERVAL, self._tell)

    def _add_worker(self) -> None:
        machine = Machine(f"host-{len(self._workers) + 1}", self.random)
        self._workers.append(SimulatedWorker(machine, self._around))

    def _fault(self) -> None:
        """One fault, then the next after a while."""
        running = [
            worker for worker in self._workers if worker.machine.process.runs and not worker.is_draining
        ]
        self._workers = running
        worker, name = self.random.choice(running), self.random.choice(("killed", "frozen", "cut", "drained"))
        self._faults[name] += 1
        match name:
            case "killed":
                worker.machine.kill()
            case "frozen":
                worker.machine.freeze()
                self.loop.call_later(60.0, worker.machine.thaw)
            case "cut":
                worker.machine.cut("postgres", "temporal", "gateway")
                self.loop.call_later(45.0, worker.machine.heal)
            case "drained":
                worker.sigterm()
        if name in ("killed", "drained"):
            self.loop.call_later(5.0, self._add_worker)
        self.loop.call_later(FAULT_INTERVAL * WORKERS / self._counts[0], self._fault)

    def _result(self, cpu_seconds: float) -> ScaleResult:
        keys, items = self._counts[1:]
        rows, violations = self.postgres.rows.values(), self.postgres.violations
        done = sum(
            bool(row.outcome and row.outcome.ending is Ending.FINISHED and row.verdict) for row in rows
        )
        twice = sum(count != 1 for count in violations.finished.values())
        twice += sum(count != 1 for count in violations.documents.values()) + len(violations.found)
        answered = self.providers.answered
        seconds = self.providers.last_answer_at - START
        return ScaleResult(
            items,
            seconds,
            best_seconds(keys, items) / seconds,
            items - done,
            twice,
            self.providers.over_limit,
            self.providers.count - len(answered),
            self.temporal.attempts,
            self._faults,
            cpu_seconds,
        )


def best_seconds(keys: int, items: int) -> float:
    """The least time in which the keys can answer one call for each item, if nothing fails and nothing is lost.

    Every key sends all that its limit allows, at once, but one call at a time, which takes the average time. Only the
    keys limit it: there are enough slots for their calls.
    """
    each = -(-items // keys)
    windows, last = divmod(each - 1, LIMIT)
    return windows * WINDOW + (last + 1) * sum(CALL_SECONDS) / 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of workers, keys and items")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts = [max(1, round(count * given.share)) for count in (WORKERS, KEYS, ITEMS)]
    print("{:,} workers, {:,} keys, {:,} items".format(*counts), flush=True)
    result = LargeLife(counts[0], counts[1], counts[2], given.seed, tells=True).run()
    print(result.text())
    return 0 if result.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
