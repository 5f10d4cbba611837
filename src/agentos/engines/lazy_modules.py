"""Lazy packages, whose code runs at the first attribute access instead of at import.

`import a.b` runs all of `a` first, however little of it `b` needs. A lazy `a` is an empty module whose submodules can
be imported; when an attribute is missing, its code is run and it becomes an ordinary module.
"""

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

MAX_IMPORT_WAIT = 10.0  # seconds

# Lets one thread run a package's code while others that access the package wait for it.
_import_lock = threading.RLock()


def make_lazy(names: Iterable[str]) -> None:
    """Make these packages lazy, except those that are imported already or not installed."""
    for name in names:
        if name not in sys.modules and (module := _empty_module(name)):
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


@contextlib.contextmanager
def without_modules(names: Iterable[str]) -> Iterator[None]:
    """Make imports of these modules fail in this block, as if they were not installed, unless they are imported already."""
    absent = [name for name in names if name not in sys.modules]
    # Python raises ModuleNotFoundError for None.
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _empty_module(name: str) -> ModuleType | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _LazyModule
    return module


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        with _import_lock:
            if _is_exactly(self, _LazyModule):
                _load(self)
        return getattr(self, name)


class _LoadingModule(ModuleType):
    """A lazy module while its code runs: other threads wait, and its own code sees what is defined so far."""

    def __getattr__(self, name: str) -> Any:
        if _import_lock.acquire(timeout=MAX_IMPORT_WAIT):
            _import_lock.release()
        if _is_exactly(self, _LoadingModule):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} yet")
        return getattr(self, name)


def _is_exactly(module: ModuleType, kind: type[ModuleType]) -> bool:
    """Exact type check: a module changes its class while it is loaded."""
    return type(module) is kind


def _load(module: ModuleType) -> None:
    loader = module.__spec__.loader if module.__spec__ else None
    assert loader is not None
    module.__class__ = _LoadingModule
    try:
        loader.exec_module(module)
    except BaseException:
        module.__class__ = _LazyModule
        raise
    module.__class__ = ModuleType
