"""The token that GitHub is asked with."""

import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from agentos.core.errors import PreflightError
from agentos.core.text.secrets import Secret

PUBLIC = "api.github.com"
PATIENCE = 10.0


def github_token(repository: str, url: str, environment: Mapping[str, str]) -> Secret:
    """From GITHUB_TOKEN or GH_TOKEN, else what gh, GitHub's own program, is logged in with."""
    named = environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN")
    found = (named or _token_of_gh(urlsplit(url).hostname or "")).strip()
    if found and found.isprintable() and found.isascii():
        return Secret(found)
    raise PreflightError(
        f"no token for GitHub, where {repository} has its issues: set GITHUB_TOKEN or GH_TOKEN, "
        "or type: gh auth login"
    )


def _token_of_gh(host: str) -> str:
    words = ["gh", "auth", "token", *([] if host == PUBLIC else ["--hostname", host])]
    try:
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
