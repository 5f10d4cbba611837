"""Plants one bug at import: the module of a mutant is compiled from its changed source."""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from importlib.machinery import ModuleSpec
from types import CodeType
from typing import Any


class _Planter(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, old: str, new: str) -> None:
        self._module, self._old, self._new = module, old, new

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec and spec.origin
        spec.loader = _Loader(name, spec.origin, self._old, self._new)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Serves imports and `python -m` alike; what was compiled before is never used."""

    def __init__(self, name: str, origin: str, old: str, new: str) -> None:
        super().__init__(name, origin)
        self._old, self._new = old, new

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        assert source.count(self._old) == 1, f"the mutant does not fit {self.path} any more"
        return compile(source.replace(self._old, self._new), self.path, "exec")


if wanted := os.environ.get("PLANTED_BUG"):
    sys.meta_path.insert(0, _Planter(**json.loads(wanted)))
