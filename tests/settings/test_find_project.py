"""Which folder is the project, depending on where the user stands."""

from pathlib import Path

import pytest

from agentos.config.project import find_project


def found(start: Path, home: Path | None = None) -> Path:
    return find_project(start, {"HOME": str(home or "/nowhere")})


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize("backlog", ["issues", "ideas/active"])
def test_a_backlog_makes_a_project_for_every_folder_below_it(tmp_path: Path, backlog: str) -> None:
    folder(tmp_path / "shop" / backlog)
    deep = folder(tmp_path / "shop/docs/lld/active")
    assert found(deep) == tmp_path / "shop"
    assert found(tmp_path / "shop" / backlog) == tmp_path / "shop"


def test_a_settings_file_further_up_wins_over_a_nearer_backlog(tmp_path: Path) -> None:
    (tmp_path / "agentos.toml").touch()
    folder(tmp_path / "docs/issues")
    assert found(folder(tmp_path / "docs/pages")) == tmp_path


def test_a_backlog_in_the_current_folder_wins_over_a_settings_file_above(tmp_path: Path) -> None:
    (tmp_path / "agentos.toml").touch()
    folder(tmp_path / "examples/shop/issues")
    assert found(tmp_path / "examples/shop") == tmp_path / "examples/shop"


def test_the_nearest_settings_file_wins(tmp_path: Path) -> None:
    (tmp_path / "agentos.toml").touch()
    inner = folder(tmp_path / "inner")
    (inner / "agentos.toml").touch()
    assert found(folder(inner / "docs")) == inner


@pytest.mark.parametrize("git_is_file", [True, False])
def test_the_search_ends_at_a_repository_and_includes_its_root(tmp_path: Path, git_is_file: bool) -> None:
    folder(tmp_path / "issues")
    repository = folder(tmp_path / "repository")
    if git_is_file:
        (repository / ".git").write_text("gitdir: elsewhere\n")
    else:
        folder(repository / ".git")
    docs = folder(repository / "docs")
    assert found(docs) == docs
    (repository / "agentos.toml").touch()
    assert found(docs) == repository


def test_the_home_directory_is_searched_only_from_within_it(tmp_path: Path) -> None:
    folder(tmp_path / "issues")
    home = folder(tmp_path / "home")
    (home / "agentos.toml").touch()
    work = folder(home / "work")
    assert found(work, home) == work
    assert found(home, home) == home
    link = tmp_path / "link"
    link.symlink_to(home)
    assert found(work, link) == work


def test_a_folder_that_everyone_can_write_to_is_not_searched(tmp_path: Path) -> None:
    shared = folder(tmp_path / "shared")
    (shared / "agentos.toml").touch()
    shared.chmod(0o1777)
    own = folder(shared / "own")
    assert found(own) == own


def test_without_a_project_it_is_the_folder_itself(tmp_path: Path) -> None:
    assert found(tmp_path) == tmp_path
