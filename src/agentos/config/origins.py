"""Where each setting comes from, for `agentos config show --origin`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentos.config.file import line_in
from agentos.config.project import PROJECT_FILE, working_folder
from agentos.config.settings import Flags, Settings, environment, home_folder, read_settings
from agentos.regular_files import read_regular

# The settings that an environment variable can set.
VARIABLES = {
    "home": "AGENTOS_HOME",
    "database": "AGENTOS_WORKFLOW_DB",
    "credential_limit": "AGENTOS_CREDENTIAL_LIMIT",
    "key_concurrency": "AGENTOS_KEY_CONCURRENCY",
    "simulate_429": "AGENTOS_SIMULATE_429",
    "step_summary": "GITHUB_STEP_SUMMARY",
    "engine": "AGENTOS_ENGINE",
    "display": "AGENTOS_DISPLAY",
    "max_parallel": "AGENTOS_MAX_PARALLEL",
    "github_url": "GITHUB_API_URL",
}


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """One setting with its value and its source."""

    name: str
    value: object
    source: str


def origins(flags: Flags, variables: Mapping[str, str] | None = None) -> list[SettingOrigin]:
    """Every setting with the value and source that it would have in a run with these flags.

    Raises the errors that such a run would raise.
    """
    env = environment() if variables is None else variables
    settings = read_settings(flags, env)
    files = (settings.project / PROJECT_FILE, home_folder(env) / "config.toml")
    given = {name for name in ("repo", *_names(Flags)) if getattr(flags, name) is not None}
    return [
        SettingOrigin(name, getattr(settings, name), _source(name, given, env, files, settings.held_back))
        if name != "project"
        else SettingOrigin(name, settings.project, _project_source(settings.project, flags))
        for name in _names(Settings)
    ]


def _source(
    name: str,
    flags: set[str],
    env: Mapping[str, str],
    files: tuple[Path, ...],
    held_back: tuple[str, ...],
) -> str:
    if name == "held_back":
        return "this project is not trusted. To trust it: agentos trust" if held_back else "default"
    if name in held_back:
        others = _source(name, flags, env, files[1:], ())
        return f"{others} ({files[0]} is held back)"
    if name in flags:
        return f"flag --{name.replace('_', '-')}"
    if env.get(VARIABLES.get(name, "")):
        return f"environment {VARIABLES[name]}"
    for path in files:
        if (line := line_of(path, name)) is not None:
            return f"{path}:{line}" if line else str(path)
    return "default"


def _project_source(project: Path, flags: Flags) -> str:
    if flags.repo:
        return "flag --repo"
    return "this folder" if project == working_folder() else "found in a parent folder"


def line_of(path: Path, name: str) -> int | None:
    """The line of a setting in a file; None if it is not there, 0 if the line is unknown."""
    try:
        return line_in(read_regular(path).decode("utf-8"), name)
    except FileNotFoundError:
        return None


def _names(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]
