"""Packages whose code is run when something of it is asked for, not when a part of it is imported.

`import a.b` first runs all of `a`, however little `b` needs of it. Here `a` stands empty, with its parts where they
are, until a name is asked for that it does not have: then its code is run, and it is as any other.
"""

import importlib.util
import sys
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import Any

MAX_IMPORT_WAIT = 10.0

# So that of two threads that ask at once, the second waits for all of it.
_one_runs = threading.RLock()


def make_lazy(names: Iterable[str]) -> None:
    """What is imported already, or is not there, stays as it is."""
    for name in names:
        if name not in sys.modules and (module := _empty(name)):
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


def _empty(name: str) -> ModuleType | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Postponed
    return module


class _Postponed(ModuleType):
    def __getattr__(self, name: str) -> Any:
        with _one_runs:
            if _is(self, _Postponed):
                _run(self)
        return getattr(self, name)


class _Running(ModuleType):
    """To its own code it is what it is so far, as any module in the middle of its import; others wait."""

    def __getattr__(self, name: str) -> Any:
        if _one_runs.acquire(timeout=MAX_IMPORT_WAIT):
            _one_runs.release()
        if _is(self, _Running):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, so far")
        return getattr(self, name)


def _is(module: ModuleType, kind: type[ModuleType]) -> bool:
    """A module changes its class on its way."""
    return type(module) is kind


def _run(module: ModuleType) -> None:
    loader = module.__spec__.loader if module.__spec__ else None
    assert loader is not None
    module.__class__ = _Running
    try:
        loader.exec_module(module)
    except BaseException:
        module.__class__ = _Postponed
        raise
    module.__class__ = ModuleType
