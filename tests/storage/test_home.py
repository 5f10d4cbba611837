"""The layout and safety of the home folder."""

import stat
from pathlib import Path

import pytest

from agentos.core.errors import PreflightError
from agentos.storage.home import Home, project_key


def test_two_projects_with_the_same_name_have_separate_checkpoints(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first, second = (home.checkpoint(tmp_path / name / "shop", "lld", 42) for name in ("a", "b"))
    assert first.name == second.name == "lld_workflow_42.db"
    assert first.parent != second.parent and first.parent.parent == tmp_path / "home/checkpoints"


def test_a_project_has_the_same_key_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    keys = {project_key(tmp_path / way) for way in ("shop", "link", "shop/../shop")}
    (key,) = keys
    assert key.startswith("shop-") and len(key) == len("shop-") + 8
    assert project_key(Path("/")).startswith("root-")


def test_the_home_has_a_fixed_layout(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.credentials == tmp_path / "credentials.toml"
    assert home.config == tmp_path / "config.toml"
    assert home.runs == tmp_path / "logs" / "parallel"


def test_open_creates_a_private_home_and_leaves_it_empty(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home").open()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert list(home.path.iterdir()) == []


def test_a_home_that_cannot_be_created_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match=r"cannot write to the home folder .*set AGENTOS_HOME"):
        Home(tmp_path / "file" / "home").open()


def test_a_home_writable_by_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="is writable by others"):
        Home(tmp_path).open()
