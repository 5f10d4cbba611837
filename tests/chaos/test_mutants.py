"""The planted bugs fit the code they are planted in; the cheapest are caught here, all by `make mutants`."""

from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant
from .steps import STEPS, locks


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_its_module(mutant: Mutant) -> None:
    assert mutant.source().read_text("utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new and mutant.step in STEPS


def test_every_kind_of_bug_is_planted() -> None:
    assert {mutant.name for mutant in MUTANTS} >= {
        "unlinked lock",
        "lock by age",
        "non-atomic write",
        "missing fsync order",
        "effect before record",
        "key pool in memory only",
        "lease not freed at death",
    }


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.step == "locks"], ids=lambda one: one.name)
def test_contention_catches_broken_locks(tmp_path: Path, mutant: Mutant) -> None:
    found = locks(tmp_path / "work", mutant.environment())
    assert any(one.startswith(("overlap", "a lock file was replaced")) for one in found), found


@pytest.mark.slow
def test_contention_finds_nothing_against_the_real_lock(tmp_path: Path) -> None:
    assert not locks(tmp_path / "work", {})
