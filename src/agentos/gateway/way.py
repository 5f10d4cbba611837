"""What a call has on its way."""

from collections.abc import Callable
from dataclasses import dataclass

from agentos.gateway.lease_broker import LeaseBroker
from agentos.gateway.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Clocks:
    """Durations by the host's, dates by the wall's."""

    host: Callable[[], float]
    wall: Callable[[], float]


@dataclass(frozen=True, slots=True)
class CallContext:
    """Keys are lent by the desk to this holder, and used upstream."""

    holder: str
    broker: LeaseBroker
    upstream: Upstream
    clocks: Clocks
