"""The reliability report names tests that exist, and the installed packages are those of the lock files."""

import ast
import base64
import hashlib
import re
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tests.audits import installed, locks, sbom

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs/reports/reliability.md"
ROWS = {
    found[1]: found[0]
    for line in REPORT.read_text("utf-8").splitlines()
    if (found := re.match(r"\| (F\d\d) \|.*", line))
}


def test_every_fault_has_its_row() -> None:
    assert set(ROWS) >= {f"F{number:02}" for number in range(1, 59)}


@pytest.mark.parametrize("row", sorted(ROWS))
def test_each_row_names_a_test_that_exists(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", ROWS[row])
    assert named
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_bill_of_materials_lists_every_locked_package() -> None:
    assert len(sbom.bill()["components"]) == len(sbom.locked()) > 10


@pytest.mark.slow
def test_installed_files_match_their_records() -> None:
    assert installed.counted() > 1000
    assert not list(installed.problems())


def test_every_requirement_is_pinned_with_a_hash() -> None:
    assert not list(locks.problems())


def test_a_changed_or_missing_file_is_reported(tmp_path: Path) -> None:
    hashed = base64.urlsafe_b64encode(hashlib.sha256(b"original").digest()).rstrip(b"=").decode()
    names = ("thing.py", "changed.py", "gone.py")
    for name in names[:2]:
        (tmp_path / name).write_bytes(b"original")
    record = tmp_path / "thing-1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: thing\nVersion: 1\n")
    (record / "RECORD").write_text("".join(f"{name},sha256={hashed},10\n" for name in names))
    (tmp_path / "changed.py").write_bytes(b"changed")
    assert list(installed.problems([PathDistribution(record)])) == [
        "thing: changed.py was changed after the installation",
        "thing: gone.py is missing",
    ]
