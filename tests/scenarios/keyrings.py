"""Writes credentials.toml for a test and runs `agentos keys`."""

import subprocess
from pathlib import Path

from .harness import KEYS, PROGRAMS, CompletedCommand, RunHarness


def credentials(harness: RunHarness, url: str, *tables: str) -> Path:
    """Write credentials.toml with one table per key; commands get no keys from the environment."""
    harness.keys = ()
    harness.home.mkdir(mode=0o700, exist_ok=True)
    path = harness.home / "credentials.toml"
    path.write_text("\n".join(f'[[credential]]\nbase_url = "{url}"\n{table}\n' for table in tables))
    path.chmod(0o600)
    return path


def table(number: int, *lines: str) -> str:
    return "\n".join((f'name = "key-{number}"', f'key = "{KEYS[number - 1]}"', *lines))


def keys(harness: RunHarness, *words: str, typed: str = "", **env: str) -> CompletedCommand:
    """Run `agentos keys` with this standard input, and check that it prints no secret."""
    done = subprocess.run(
        [PROGRAMS / "agentos", "keys", *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=harness.project,
        env=harness.environment(**env),
    )
    assert not any(secret in done.stdout + done.stderr for secret in KEYS)
    assert "Traceback" not in done.stderr
    return CompletedCommand(done.returncode, done.stdout, done.stderr)


def line(done: CompletedCommand, name: str) -> str:
    (found,) = [line for line in done.lines if line.startswith(f"{name} ")]
    return found
