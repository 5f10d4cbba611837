"""pyproject.toml declares exactly the packages that the source imports, each with both bounds."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from agentos.codebase.grammars import GRAMMARS
from tests.audits import lowest
from tests.audits.tree import ROOT, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = [name for extra in PROJECT["optional-dependencies"].values() for name in extra]
DECLARED = [*PROJECT["dependencies"], *EXTRAS]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).casefold()


def imported() -> set[str]:
    """The top-level names of all packages that the source imports, standard library excluded."""
    found = set()
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"agentos"}


def providers(package: str) -> set[str]:
    """The distributions that provide an importable package; its own name if none is installed."""
    return {plain(name) for name in packages_distributions().get(package, [package])}


@pytest.mark.slow
def test_every_imported_package_is_declared() -> None:
    declared = {plain(re.split(r"[\[><=]", requirement)[0]) for requirement in DECLARED}
    assert {package for package in imported() if not providers(package) & declared} == set()


@pytest.mark.slow
def test_every_declared_package_is_imported() -> None:
    packages = imported() | {grammar.package for grammar in GRAMMARS.values()}  # imported by name
    used = {name for package in packages for name in providers(package)}
    assert {plain(re.split(r"[\[><=]", requirement)[0]) for requirement in DECLARED} <= used


@pytest.mark.parametrize("requirement", DECLARED)
def test_every_requirement_has_a_lower_and_an_upper_bound(requirement: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]+(?:\[[a-z]+\])?>=[\d.]+,<[\d.]+", requirement)


def test_the_lowest_versions_pin_every_runtime_requirement() -> None:
    pinned = [requirement for requirement in lowest.requirements() if "==" in requirement]
    assert len(pinned) == len(DECLARED)
    assert any(requirement.startswith("pytest>=") for requirement in lowest.requirements())
