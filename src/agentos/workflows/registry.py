"""Workflows by name."""

import importlib

from agentos.core.errors import UsageError
from agentos.workflows.base import Workflow

_BUILT_IN = {
    "lld": "agentos.workflows.lld:LldWorkflow",
    "issue": "agentos.workflows.issue:IssueWorkflow",
}


def find_workflow(name: str) -> Workflow:
    if name not in _BUILT_IN:
        raise UsageError(f"no workflow is called {name!r}; there are: {', '.join(_BUILT_IN)}")
    module, _, attribute = _BUILT_IN[name].partition(":")
    workflow: Workflow = getattr(importlib.import_module(module), attribute)()
    return workflow
