"""The package builds, installs from a wheel and from a checkout, and its commands start."""

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import agentos
from tests.audits.tree import ROOT, tracked

PACKAGED = ("src/", "data/", "pyproject.toml", "README.md", "LICENSE")
VERSION = f"agentos {agentos.__version__}"
INSTALLERS = {
    "uv": ("uv", "tool", "install", "--python", sys.executable),
    "pipx": ("pipx", "install", "--python", sys.executable),
}


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what gets packaged, so that building leaves nothing behind in the repository."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in tracked():
        if name.startswith(PACKAGED):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from flit_core.buildapi import build_wheel; print(build_wheel({str(folder)!r}))"
    return folder / run(sys.executable, "-c", build, cwd=checkout).splitlines()[-1]


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with uv and pipx in it."""
    folder = tmp_path_factory.mktemp("installers")
    venv.create(folder, with_pip=True)
    done = subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", "uv", "pipx"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("uv and pipx cannot be installed: no package index can be reached")
    return folder / "bin"


def test_the_wheel_has_the_name_the_version_and_the_data_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(info))
        commands = archive.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert (metadata["Name"], metadata["Version"]) == ("agentos-runner", agentos.__version__)
    assert {"agentos", "lld-workflow", "issue-workflow"} <= {
        line.partition("=")[0].strip() for line in commands.splitlines()
    }
    assert any(name.startswith("agentos/workflows/prompts/") for name in names)
    assert any(name.startswith("agentos/demo_backlog/issues/") for name in names)
    assert any(name.endswith(".data/data/share/man/man1/agentos.1") for name in names)
    assert not [name for name in names if not name.startswith(("agentos/", "agentos_runner-"))]


def test_the_wheel_installs_with_pip_without_a_network(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are those of the environment that runs the tests."""
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        wheel,
    )
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    assert run(python.with_name("agentos"), "--version", cwd=tmp_path) == VERSION
    assert (tmp_path / "venv/share/man/man1/lld-workflow.1").exists(), "man finds pages beside the programs"
    assert run(python.with_name("lld-workflow"), "--help", cwd=tmp_path).startswith("Usage: lld-workflow")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", ["wheel", "checkout"])
@pytest.mark.parametrize("installer", INSTALLERS)
def test_the_command_starts_after_an_installation_with(
    installer: str, source: str, request: pytest.FixtureRequest, installers: Path, tmp_path: Path
) -> None:
    program, *arguments = INSTALLERS[installer]
    folders = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "tools", "PIPX_BIN_DIR": "bin"}
    env = os.environ | {name: str(tmp_path / folder) for name, folder in folders.items()}
    run(installers / program, *arguments, request.getfixturevalue(source), env=env, cwd=tmp_path)
    assert run(tmp_path / "bin" / "agentos", "--version", cwd=tmp_path) == VERSION
