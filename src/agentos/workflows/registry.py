"""Finds workflows by name: built in, registered by an installed package, or given as `module:object`."""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentos.config.settings import placeholder_keys
from agentos.core.errors import BrokenWorkflow, UsageError
from agentos.core.text.values import error_location
from agentos.workflows.plugin import MISSING, Plugin, read_member

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

ENTRY_POINT_GROUP = "agentos.workflows"
BUILT_IN = {
    "lld": "agentos.workflows.lld:LldWorkflow",
    "issue": "agentos.workflows.issue:IssueWorkflow",
}


def find_workflow(name: str, project: Path) -> Plugin:
    """Load only the workflow of this name."""
    if name in BUILT_IN:
        return _load(BUILT_IN[name])
    if ":" in name:
        return _check_not_built_in(_load(_checked_origin(name, project)))
    registered = [entry for entry in _entry_points() if entry.name == name]
    if not registered:
        raise UsageError(f"no workflow named {name!r}; available: {', '.join(workflow_names())}")
    workflow = _check_not_built_in(_load(_single_origin(registered)))
    if workflow.name != name:
        raise BrokenWorkflow(
            f"the workflow at {workflow.origin} is registered as {name!r}, but has name = {workflow.name!r}: "
            "give both the same name"
        )
    return workflow


def workflow_names() -> list[str]:
    """Every name that can be typed; loads no workflow."""
    return [*BUILT_IN, *sorted({entry.name for entry in _entry_points()} - set(BUILT_IN))]


def load_workflow(origin: str, modules: str) -> Plugin:
    """Load a workflow in a worker process. `modules` is the project folder if the workflow may be there, otherwise empty."""
    if modules:
        _append_to_path(modules)
    return _load(origin)


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINT_GROUP)


def _single_origin(registered: "list[EntryPoint]") -> str:
    values = {entry.value: entry.dist.name if entry.dist else "?" for entry in registered}
    if len(values) > 1:
        packages = " and ".join(sorted(set(values.values())))
        raise BrokenWorkflow(
            f"the workflow {registered[0].name!r} is registered by {packages}: "
            f"uninstall one of them, or give the object: {' or '.join(sorted(values))}"
        )
    return registered[0].value


def _checked_origin(name: str, project: Path) -> str:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise UsageError(f"invalid workflow {name!r}: expected a name such as lld, or package.module:object")
    _append_to_path(str(project))
    return name


def _append_to_path(folder: str) -> None:
    """Make the project's modules importable; last on the path, so that they cannot shadow installed ones."""
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()


def _load(origin: str) -> Plugin:
    module, _, attribute = origin.partition(":")
    target: Any = _import(module, origin)
    for name in attribute.split(".") if attribute else ():
        container, target = target, read_member(origin, target, name)
        if target is MISSING:
            members = getattr(container, "__dict__", {}).items()
            classes = sorted(key for key, value in members if key[0] != "_" and isinstance(value, type))
            # An installed module takes precedence over a project's file of the same name.
            file = getattr(sys.modules[module], "__file__", None) or "Python itself"
            raise UsageError(
                f"no workflow at {origin}: {name!r} not found; classes there: {', '.join(classes) or 'none'} "
                f"({module} is {file})"
            )
    return Plugin.of(origin, target)


def _import(module: str, origin: str) -> Any:
    try:
        with placeholder_keys() if origin not in BUILT_IN.values() else contextlib.nullcontext():
            return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (module == missing or module.startswith(f"{missing}.")):
            raise UsageError(
                f"no workflow at {origin}: no module {missing!r} in the project or among the installed packages; "
                "install the package, or change to the folder that contains the file"
            ) from error
        raise BrokenWorkflow(
            f"the workflow at {origin} cannot be loaded: {error_location(error)}. "
            "Fix it; other workflows are not affected"
        ) from error


def _check_not_built_in(workflow: Plugin) -> Plugin:
    if workflow.name in BUILT_IN:
        raise BrokenWorkflow(
            f"the workflow at {workflow.origin} has name = {workflow.name!r}, the name of a built-in workflow: "
            "choose another, so that their items are not mixed up"
        )
    return workflow
