"""The embedded model server: a rule machine behind the vendors' wire formats on loopback."""

from .behaviour import Behaviour, Latency
from .fault_json import parse_faults
from .faults import Fault, Kind, Match
from .keys import Key, make_keys, parse_key
from .limits import Limits, Window
from .server import serve

__all__ = [
    "Behaviour",
    "Fault",
    "Key",
    "Kind",
    "Latency",
    "Limits",
    "Match",
    "Window",
    "make_keys",
    "parse_faults",
    "parse_key",
    "serve",
]
