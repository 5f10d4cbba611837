"""What is around a machine of the imagined fleet, and what the items of a life consist of."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from agentos.core.planning.submission import SharedTask
from agentos.core.planning.worker_task import RoleModel
from agentos.fleet.poller import TemporalPoller

from .gateway import Gateway
from .postgres import Postgres
from .stores import SimulatedFleetDatabase, SimulatedItemStore
from .temporal import Temporal

MODEL = "m"
ROLES = (RoleModel("drafter", ("gemini",), (MODEL,)),)


@dataclass(slots=True)
class Work:
    """What the items of a life consist of, and what may happen to their processes."""

    random: Random
    nodes: int = 2
    parallel: int = 3
    gate: int = -1  # the node before which an item waits for a person
    retries: int = 2
    crash: float = 0.0
    failure: float = 0.0
    start_seconds: tuple[float, float] = (0.02, 0.5)
    node_seconds: tuple[float, float] = (0.0, 0.3)
    heartbeat_interval: float = 1.0
    crashes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    """By item: answers that may have been lost on their way."""

    def happens(self, item: str, probability: float) -> bool:
        """A fault of the item itself; never more of them than it has retries."""
        found = probability > 0 and self.random.random() < probability and self.faults[item] < self.retries
        self.faults[item] += found
        return found


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything around a machine, and the fleet's own parts, which a planted bug replaces."""

    work: Work
    postgres: Postgres
    temporal: Temporal
    gateway: Gateway
    shared: SharedTask
    poller: type[TemporalPoller] = TemporalPoller
    store: type[SimulatedItemStore] = SimulatedItemStore
    database: type[SimulatedFleetDatabase] = SimulatedFleetDatabase
