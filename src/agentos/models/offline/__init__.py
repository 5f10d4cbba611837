"""The embedded model server: a rule machine behind the vendors' wire formats on loopback."""

from .behaviour import Behaviour, Hints, Latency
from .fault_json import parse_faults
from .faults import Fault, Kind, Match
from .keys import Key, make_keys, parse_key
from .limit_text import parse_limits
from .limits import Limits
from .server import serve
from .windows import Window

__all__ = [
    "Behaviour",
    "Fault",
    "Hints",
    "Key",
    "Kind",
    "Latency",
    "Limits",
    "Match",
    "Window",
    "make_keys",
    "parse_faults",
    "parse_key",
    "parse_limits",
    "serve",
]
