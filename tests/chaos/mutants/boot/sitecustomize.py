"""Plants one bug at import: the module of a mutant is compiled from its changed source."""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Planter(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._old, self._new = module, old, new

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec and spec.origin
        spec.loader = _Loader(spec.origin, self._old, self._new)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, origin: str, old: str, new: str) -> None:
        self._origin, self._old, self._new = origin, old, new

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        with open(self._origin, encoding="utf-8") as file:
            source = file.read()
        assert source.count(self._old) == 1, f"the mutant does not fit {self._origin} any more"
        module.__file__ = self._origin
        exec(compile(source.replace(self._old, self._new), self._origin, "exec"), module.__dict__)


if wanted := os.environ.get("PLANTED_BUG"):
    sys.meta_path.insert(0, _Planter(**json.loads(wanted)))
