"""Installs LiteLLM's proxy into a venv of its own, on demand and for the benchmark only."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / ".venv"
PACKAGE = "litellm[proxy]"


def litellm(venv: Path = FOLDER) -> Path | None:
    """The path of its program; None if it cannot be installed."""
    program = venv / "bin" / "litellm"
    if program.exists():
        return program
    print(f"Setting up {PACKAGE} in {venv} ...", file=sys.stderr)
    pip = [str(venv / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", PACKAGE]
    for command in ([sys.executable, "-m", "venv", str(venv)], pip):
        if subprocess.run(command, check=False).returncode:
            return None
    return program
