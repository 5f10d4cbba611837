"""Atomic writes that never leave their folder."""

import fcntl
import hashlib
import os
import stat
from pathlib import Path

import pytest

from agentos.core.errors import PreflightError
from agentos.regular_files import UnsafeFile
from agentos.storage.files import TMP_PREFIX, Folder, private_file, private_folder
from agentos.storage.home import check_home


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def everything(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


def test_write_creates_parent_folders_and_read_returns_the_content(root: Path) -> None:
    folder = Folder(root)
    assert folder.write("docs/lld/LLD-1.md", b"text") == root / "docs/lld/LLD-1.md"
    assert folder.read("docs/lld/LLD-1.md") == b"text"
    assert folder.names("docs/lld") == ["LLD-1.md"]


def test_a_second_write_replaces_the_whole_file(root: Path) -> None:
    folder = Folder(root)
    folder.write("a.md", b"a long first text")
    with open(root / "a.md", "rb") as reader:
        folder.write("a.md", b"second")
        assert reader.read() == b"a long first text"
    assert folder.read("a.md") == b"second"


def test_write_leaves_no_temporary_file(root: Path) -> None:
    Folder(root).write("docs/a.md", b"x")
    (root / "busy").mkdir()
    (root / "busy/child").touch()
    with pytest.raises((OSError, UnsafeFile)):
        Folder(root).write("busy", b"a file cannot replace a folder")
    assert everything(root) == ["busy", "busy/child", "docs", "docs/a.md"]


def temporary(root: Path, name: str) -> Path:
    """Where the content of this name stands until it is whole."""
    return root / f"{TMP_PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:24]}"


def test_the_temporary_file_of_a_killed_writer_is_replaced(root: Path) -> None:
    temporary(root, "a.md").write_text("hal")
    Folder(root).write("a.md", b"whole")
    assert everything(root) == ["a.md"] and Folder(root).read("a.md") == b"whole"


def test_a_link_in_place_of_the_temporary_file_is_replaced_without_following_it(root: Path) -> None:
    victim = root.parent / "victim"
    victim.write_text("mine")
    temporary(root, "a.md").symlink_to(victim)
    Folder(root).write("a.md", b"ours")
    assert victim.read_text() == "mine" and everything(root) == ["a.md"]


def test_a_second_writer_of_the_same_file_is_refused(root: Path) -> None:
    with open(temporary(root, "a.md"), "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(b"theirs")
        with pytest.raises(FileExistsError, match="another process is writing it"):
            Folder(root).write("a.md", b"ours")
        Folder(root).write("b.md", b"nobody is in its way")
    assert temporary(root, "a.md").read_bytes() == b"theirs"


def test_leftover_temporary_files_are_not_listed(root: Path) -> None:
    (root / "docs").mkdir()
    (root / "docs" / f"{TMP_PREFIX}0").touch()
    assert Folder(root).names("docs") == []


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/..", "..", "/etc/x", "", ".", "/"])
def test_a_name_outside_the_folder_is_refused(root: Path, name: str) -> None:
    folder = Folder(root)
    for act in (folder.read, folder.exists, folder.remove, lambda name: folder.write(name, b"x")):
        with pytest.raises(ValueError, match="not a relative path inside the folder"):
            act(name)
    with pytest.raises(ValueError):
        folder.write("a\0b", b"x")
    assert everything(root.parent) == ["root"]


def test_a_symlinked_folder_in_the_path_is_refused(root: Path) -> None:
    victim = root.parent / "victim"
    victim.mkdir()
    (victim / "a.md").write_text("mine")
    (root / "docs").symlink_to(victim)
    folder = Folder(root)
    with pytest.raises((OSError, UnsafeFile)):
        folder.write("docs/new.md", b"x")
    with pytest.raises((OSError, UnsafeFile)):
        folder.read("docs/a.md")
    folder.remove("docs/a.md")
    assert not folder.exists("docs/a.md") and folder.names("docs") == []
    assert everything(victim) == ["a.md"] and (victim / "a.md").read_text() == "mine"


def test_writing_replaces_a_link_instead_of_following_it(root: Path) -> None:
    victim = root.parent / "victim"
    victim.write_text("mine")
    (root / "a.md").symlink_to(victim)
    with pytest.raises((OSError, UnsafeFile)):
        Folder(root).read("a.md")
    Folder(root).write("a.md", b"ours")
    assert victim.read_text() == "mine" and not (root / "a.md").is_symlink()


def test_move_is_idempotent(root: Path) -> None:
    folder = Folder(root)
    folder.write("ideas/active/a.md", b"x")
    for _ in range(2):
        folder.move("ideas/active/a.md", "ideas/done/a.md")
    assert folder.names("ideas/active") == [] and folder.read("ideas/done/a.md") == b"x"


def test_missing_folders_are_empty_and_missing_files_can_be_removed(root: Path) -> None:
    folder = Folder(root)
    folder.remove("nothing/at/all.md")
    assert folder.names("nothing") == [] and not folder.exists("nothing/at/all.md")
    with pytest.raises(FileNotFoundError):
        folder.read("nothing.md")
    assert everything(root) == []


def test_private_files_and_folders_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    os.close(private_file(private_folder(tmp_path / "a" / "b") / "log"))
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a/b/log").stat().st_mode) == 0o600


def test_a_private_file_is_never_opened_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "log").symlink_to(victim)
    with pytest.raises((OSError, UnsafeFile)):
        private_file(tmp_path / "log")


def test_an_unsafe_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    check_home(home)
    home.mkdir(mode=0o700)
    check_home(home)
    home.chmod(0o777)
    with pytest.raises(PreflightError, match=f"chmod 700 {home}"):
        check_home(home)
    home.chmod(0o700)
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(PreflightError, match="symbolic link"):
        check_home(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match="not a folder"):
        check_home(tmp_path / "file")
