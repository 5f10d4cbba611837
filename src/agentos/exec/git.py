"""Runs git in a given folder, without hooks and prompts."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from agentos.config.settings import environment

TIMEOUT = 600.0  # seconds; checking out a large repository takes minutes
# These would point git at a different repository.
_REDIRECTING = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
)
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


class GitError(Exception):
    """git is missing or failed; the text is its own message."""


def git(folder: Path, *arguments: str, codes: Collection[int] = (0,)) -> str:
    """The output of a git command without its last newline; raises GitError for an exit code that is not in `codes`."""
    result = _run(folder, arguments)
    if result.returncode not in codes:
        lines = (result.stderr or result.stdout).strip().splitlines()
        reasons = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines[-1:]
        raise GitError(reasons[0] if reasons else f"git {arguments[0]} exited with {result.returncode}")
    return result.stdout.removesuffix("\n")


def git_code(folder: Path, *arguments: str) -> int:
    """The exit code of a git command whose answer is its exit code."""
    return _run(folder, arguments).returncode


def _run(folder: Path, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in environment().items() if name not in _REDIRECTING}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *_OPTIONS, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=TIMEOUT,
            env={**inherited, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {arguments[0]} took longer than {TIMEOUT:.0f} s") from error
