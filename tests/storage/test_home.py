"""Where everything stands in the home folder."""

import stat
from pathlib import Path

import pytest

from agentos.core.errors import PreflightError
from agentos.storage.home import Home, project_key


def test_two_projects_of_one_name_keep_their_checkpoints_apart(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    one, two = (home.checkpoint(tmp_path / name / "shop", "lld", 42) for name in ("a", "b"))
    assert one.name == two.name == "lld_workflow_42.db"
    assert one.parent != two.parent and one.parent.parent == tmp_path / "home/checkpoints"


def test_a_project_is_the_same_by_whatever_way_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    keys = {project_key(tmp_path / way) for way in ("shop", "link", "shop/../shop")}
    (key,) = keys
    assert key.startswith("shop-") and len(key) == len("shop-") + 8
    assert project_key(Path("/")).startswith("root-")


def test_everything_else_has_its_place(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.credentials == tmp_path / "credentials.toml"
    assert home.config == tmp_path / "config.toml"
    assert home.runs == tmp_path / "logs" / "parallel"


def test_a_home_is_made_for_its_owner_alone_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home").open()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert list(home.path.iterdir()) == []


def test_a_home_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match=r"cannot write to the home folder .*set AGENTOS_HOME"):
        Home(tmp_path / "file" / "home").open()


def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="is writable by others"):
        Home(tmp_path).open()
