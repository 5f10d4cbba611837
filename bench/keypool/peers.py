"""The peers' own venv: made by the benchmark alone, on demand, never the product's."""

import subprocess
import sys
from pathlib import Path

VENV = Path(__file__).parent / ".venv"
PYTHON = VENV / "bin" / "python"
DONE = VENV / ".peers"
PACKAGES = ("litellm", "inspect-ai", "openai", "tenacity", "aiolimiter")


def installed() -> bool:
    return DONE.exists()


def install() -> bool:
    """Whether the peers are there now; tells on stderr why not."""
    print(f"Setting up the peers in {VENV.relative_to(Path.cwd())} ...", file=sys.stderr)
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *PACKAGES]
    for command in ([sys.executable, "-m", "venv", str(VENV)], pip):
        if subprocess.run(command, check=False).returncode:
            return False
    DONE.touch()
    return True
