"""LiteLLM's proxy in a venv of its own: made by the benchmark alone, on demand, never the product's."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / ".venv"
PACKAGE = "litellm[proxy]"


def litellm(venv: Path = FOLDER) -> Path | None:
    """Its program; None if it cannot be had."""
    program = venv / "bin" / "litellm"
    if program.exists():
        return program
    print(f"Setting up {PACKAGE} in {venv} ...", file=sys.stderr)
    pip = [str(venv / "bin" / "pip"), "--disable-pip-version-check", "install", "--quiet", PACKAGE]
    for command in ([sys.executable, "-m", "venv", str(venv)], pip):
        if subprocess.run(command, check=False).returncode:
            return None
    return program
