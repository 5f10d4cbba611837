"""Finds the GitHub token."""

import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from agentos.core.errors import PreflightError
from agentos.core.text.secrets import Secret

PUBLIC_API = "api.github.com"
GH_TIMEOUT = 10.0  # seconds


def github_token(repository: str, url: str, environment: Mapping[str, str]) -> Secret:
    """From GITHUB_TOKEN or GH_TOKEN, else from `gh`, GitHub's command-line program, if it is logged in."""
    variable = environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN")
    token = (variable or _token_from_gh(urlsplit(url).hostname or "")).strip()
    if token and token.isprintable() and token.isascii():
        return Secret(token)
    raise PreflightError(
        f"no GitHub token for the issues of {repository}: set GITHUB_TOKEN or GH_TOKEN, or run: gh auth login"
    )


def _token_from_gh(host: str) -> str:
    command = ["gh", "auth", "token", *([] if host == PUBLIC_API else ["--hostname", host])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GH_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
