"""The public API of workflows: documented, and enough for the built-in ones."""

import ast
import importlib
import re

import pytest

from tests.audits.tree import ROOT

MODULES = (
    "agentos.workflows",
    "agentos.workflows.human_gate",
    "agentos.workflows.material",
    "agentos.workflows.review_loop",
)
REFERENCE = ROOT / "docs/reference/workflows.md"


def public_names(module: str) -> list[str]:
    return list(importlib.import_module(module).__all__)


@pytest.mark.parametrize("workflow", ["lld", "issue"])
def test_a_built_in_workflow_imports_only_what_a_users_own_may(workflow: str) -> None:
    source = (ROOT / f"src/agentos/workflows/{workflow}.py").read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    plain = [name.name for node in imports if isinstance(node, ast.Import) for name in node.names]
    assert not [name for name in plain if name.startswith("agentos")]
    used = {
        (node.module or "", name.name)
        for node in imports
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("agentos"))
        for name in node.names
    }
    allowed = {(module, name) for module in MODULES for name in public_names(module)}
    assert used and used <= allowed, used - allowed


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_is_in_the_reference(module: str) -> None:
    text = re.sub(r"```.*?```", "", REFERENCE.read_text("utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    names = public_names(module)
    assert f"`{module}`" in text or module == "agentos.workflows"
    assert set(names) <= named, set(names) - named
    assert all(hasattr(importlib.import_module(module), name) for name in names)
