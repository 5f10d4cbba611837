"""The scenarios: the server's limits and behaviour, the load, and what the clients know."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentos.offline.rate_limits import OfflineLimits
from agentos.offline.rate_windows import WindowKind

BUCKET = OfflineLimits(rate=5, seconds=1.0, window=WindowKind.BUCKET, burst=5)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`limits` of each key; `dead`: keys by index, with the fault that every call on them gets.

    `names_limits`: the server's minute lasts a minute, so the limits that it names are right. `phase` is the
    second of the minute at which the load starts.
    """

    name: str
    limits: tuple[OfflineLimits, ...]
    calls: int = 400
    callers: int = 10
    latency: float = 0.05
    processes: int = 1
    characters: tuple[int, int] = (200, 200)
    dead: Mapping[int, str] = field(default_factory=dict)
    names_limits: bool = False
    phase: float | None = None
    concurrency: int = 16

    def smaller(self, calls: int) -> "Scenario":
        return replace(self, calls=calls)


def _unequal() -> tuple[OfflineLimits, ...]:
    return tuple(replace(BUCKET, rate=rate, burst=rate) for rate in (2, 4, 8, 16))


SCENARIOS = (
    Scenario("bucket", (BUCKET,) * 4),
    Scenario("counts-refused", (replace(BUCKET, counts_refused=True),) * 4),
    Scenario("four-processes", (BUCKET,) * 4, callers=12, processes=4),
    Scenario("slow", (BUCKET,) * 4, callers=64, latency=2.0),
    Scenario("unequal", _unequal(), calls=600),
    Scenario(
        "tokens",
        (OfflineLimits(tokens=4000, seconds=4.0, window=WindowKind.BUCKET),) * 4,
        characters=(1000, 2600),
    ),
    Scenario("dead-keys", (BUCKET,) * 4, calls=200, dead={1: "403", 2: "429-day"}),
    Scenario("minute", (OfflineLimits(rate=30, window=WindowKind.FIXED),) * 4, calls=300, phase=30.0),
    Scenario("gemini", (OfflineLimits(rate=60),) * 4, calls=360, names_limits=True),
)
NAMES = tuple(scenario.name for scenario in SCENARIOS)


def scenario_named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)
