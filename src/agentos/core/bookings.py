"""What one call was counted for."""

from dataclasses import dataclass, field

from agentos.core.loads import Dimension, Load
from agentos.core.meters import Spent


@dataclass(slots=True)
class Booking:
    """Kept until the call's usage is known."""

    at: float
    load: Load = field(default_factory=Load)
    entries: dict[Dimension, Spent] = field(default_factory=dict)
    refused: bool = False
    settled: bool = False
