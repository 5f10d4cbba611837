"""Workflows by name: our own, those of installed packages, those named as `module:object`."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentos.core.errors import BrokenWorkflow, UsageError
from agentos.workflows.plugin import Plugin, told

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

GROUP = "agentos.workflows"
BUILT_IN = {
    "lld": "agentos.workflows.lld:LldWorkflow",
    "issue": "agentos.workflows.issue:IssueWorkflow",
}


def find_workflow(name: str, project: Path) -> Plugin:
    """The workflow of this name; of several that are registered, none but this one is loaded."""
    if name in BUILT_IN:
        return _load(BUILT_IN[name])
    if ":" in name:
        return _not_ours(_load(_named(name, project)))
    registered = [entry for entry in _registered() if entry.name == name]
    if not registered:
        raise UsageError(f"no workflow is called {name!r}; there are: {', '.join(workflow_names())}")
    workflow = _not_ours(_load(_only(registered)))
    if workflow.name != name:
        raise BrokenWorkflow(
            f"the workflow at {workflow.origin} is registered as {name!r}, but has name = {workflow.name!r}: "
            "give both the same name"
        )
    return workflow


def workflow_names() -> list[str]:
    """Every name that can be typed; nothing is loaded for it."""
    return [*BUILT_IN, *sorted({entry.name for entry in _registered()} - set(BUILT_IN))]


def load_workflow(origin: str, modules: str) -> Plugin:
    """A workflow that was found before, in another process; `modules` as `find_workflow` had it."""
    if modules:
        _also_from(modules)
    return _load(origin)


def _registered() -> "EntryPoints":
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _only(registered: "list[EntryPoint]") -> str:
    values = {entry.value: entry.dist.name if entry.dist else "?" for entry in registered}
    if len(values) > 1:
        packages = " and ".join(sorted(set(values.values())))
        raise BrokenWorkflow(
            f"the workflow {registered[0].name!r} is registered by {packages}: "
            f"uninstall one of them, or name the object: {' or '.join(sorted(values))}"
        )
    return registered[0].value


def _named(name: str, project: Path) -> str:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise UsageError(f"{name!r} names no workflow; expected such as lld, or package.module:object")
    _also_from(str(project))
    return name


def _also_from(folder: str) -> None:
    """Modules of the project can be named too; they come last, so that they stand in for no other."""
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()


def _load(origin: str) -> Plugin:
    module, _, attribute = origin.partition(":")
    found: Any = _imported(module, origin)
    for part in attribute.split(".") if attribute else ():
        found = _part(found, part, origin)
    return Plugin.of(origin, found)


def _imported(module: str, origin: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise UsageError(
                f"no workflow at {origin}: there is no module {error.name!r} in the project or among the "
                "installed packages; install the package, or go to the folder that has the file"
            ) from error
        raise _unloadable(origin, error) from error
    except (Exception, SystemExit) as error:
        raise _unloadable(origin, error) from error


def _unloadable(origin: str, error: BaseException) -> BrokenWorkflow:
    return BrokenWorkflow(
        f"the workflow at {origin} cannot be loaded: {told(error)}. Mend it; other workflows are not concerned"
    )


def _part(found: Any, name: str, origin: str) -> Any:
    if hasattr(found, name):
        return getattr(found, name)
    known = sorted(
        one for one in vars(found) if not one.startswith("_") and isinstance(vars(found)[one], type)
    )
    raise UsageError(
        f"no workflow at {origin}: there is no {name!r}; classes there: {', '.join(known) or 'none'}"
    )


def _not_ours(workflow: Plugin) -> Plugin:
    if workflow.name in BUILT_IN:
        raise BrokenWorkflow(
            f"the workflow at {workflow.origin} has name = {workflow.name!r}, which is a built-in one's: "
            "its items would be mixed up with those; choose another"
        )
    return workflow
