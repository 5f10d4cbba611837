"""A venv for each peer, created on demand and separate from the product's."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / ".venv"
# LiteLLM and inspect_ai require different versions of OpenAI's SDK.
PACKAGES = {
    "tenacity": ("tenacity",),
    "aiolimiter": ("aiolimiter",),
    "litellm": ("litellm",),
    "litellm-patient": ("litellm",),
    "inspect_ai": ("inspect-ai", "openai>=3.4"),
}


def python_of(client: str) -> Path:
    return _venv(client) / "bin" / "python"


def installed(client: str) -> bool:
    return _done(client).exists()


def installable(client: str) -> bool:
    """Installs what is missing; returns whether the client can run."""
    if installed(client):
        return True
    print(f"Setting up {' '.join(PACKAGES[client])} in {_venv(client)} ...", file=sys.stderr)
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", *PACKAGES[client]]
    for command in ([sys.executable, "-m", "venv", str(_venv(client))], [str(python_of(client)), *pip]):
        if subprocess.run(command, check=False).returncode:
            return False
    _done(client).touch()
    return True


def _done(client: str) -> Path:
    return _venv(client) / ".done"


def _venv(client: str) -> Path:
    return FOLDER / PACKAGES[client][0]
