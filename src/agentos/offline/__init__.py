"""The embedded model server: a rule machine behind the vendors' wire formats on loopback."""

from agentos.offline.config import Hints, Latency, ServerConfig
from agentos.offline.faults.parse import parse_faults
from agentos.offline.faults.script import Fault, FaultKind, Match
from agentos.offline.keys import OfflineKey, make_keys, parse_key
from agentos.offline.limits.limiter import OfflineLimits
from agentos.offline.limits.parse import parse_limits
from agentos.offline.limits.windows import WindowKind
from agentos.offline.server import serve

__all__ = [
    "Fault",
    "FaultKind",
    "Hints",
    "Latency",
    "Match",
    "OfflineKey",
    "OfflineLimits",
    "ServerConfig",
    "WindowKind",
    "make_keys",
    "parse_faults",
    "parse_key",
    "parse_limits",
    "serve",
]
