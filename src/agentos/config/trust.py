"""Trust: what a project's agentos.toml may decide before the user has trusted the project.

A project file may say how the project's documents are made. Until the user has run `agentos trust` there, it may not
choose where the user's credentials are used (such as the repository that a token writes to), loosen a limit that protects
the user (budget, prices) or delete records. Trust is stored with the project's real path and the hash of its agentos.toml,
so an edited file has to be trusted again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agentos.config.file import FleetSettings
from agentos.core.constants import MAX_PARALLEL
from agentos.core.errors import PreflightError
from agentos.core.quota.budget import Price
from agentos.regular_files import read_regular

TRUST_FILE = "trusted.json"
# Why each setting requires trust. Settings that are not listed may come from any project.
NEEDS_TRUST: Mapping[str, str] = {
    "github": "your token would read and file issues there",
    "on_done": "it runs a command on your machine",
    "keep_runs": "it deletes records of your other projects",
    "prices": "a price below the known one weakens --budget",
    "budget": "it is higher than the budget in your own settings",
    "max_parallel": "it is higher than your own settings allow",
    "fleet": "your token and your prompts would go to its gateway",
}


@dataclass(frozen=True, slots=True)
class VettedSettings:
    """The settings of a project file that may be used, and the names of those that are held back."""

    settings: dict[str, object]
    held_back: tuple[str, ...] = ()


def vet(
    project: Mapping[str, object],
    user: Mapping[str, object],
    known_price: Callable[[str], Price | None],
) -> VettedSettings:
    """Filter an untrusted project's settings against the user's own."""
    allowed = {name: value for name, value in project.items() if name not in NEEDS_TRUST}
    held_back = [name for name in project if name in NEEDS_TRUST]
    if "prices" in project:
        prices = project["prices"]
        assert isinstance(prices, tuple)
        safe = tuple((model, price) for model, price in prices if _is_safe(price, known_price(model)))
        if safe:
            allowed["prices"] = safe
        if len(safe) == len(prices):
            held_back.remove("prices")
    if "budget" in project:
        own, asked = user.get("budget"), project["budget"]
        if own is None or (isinstance(own, float) and isinstance(asked, float) and asked <= own):
            allowed["budget"] = asked
            held_back.remove("budget")
    if "max_parallel" in project and _count(project) <= _count(user):
        allowed["max_parallel"] = project["max_parallel"]
        held_back.remove("max_parallel")
    if isinstance(fleet := project.get("fleet"), FleetSettings):
        allowed["fleet"] = replace(fleet, gateway="")
        if not fleet.gateway:
            held_back.remove("fleet")
    return VettedSettings(allowed, tuple(held_back))


def _count(settings: Mapping[str, object]) -> int:
    value = settings.get("max_parallel", MAX_PARALLEL)
    assert isinstance(value, int)
    return value


def is_trusted(home: Path, project: Path, project_file: Path) -> bool:
    """Whether the user has trusted this project with its current settings."""
    return trusted_projects(home).get(os.path.realpath(project)) == _digest(project_file)


def trust_project(home: Path, project: Path, project_file: Path) -> None:
    _save(home, {**trusted_projects(home), os.path.realpath(project): _digest(project_file)})


def revoke_trust(home: Path, project: Path) -> bool:
    """Remove the project's trust entry; return whether there was one."""
    known = trusted_projects(home)
    if known.pop(os.path.realpath(project), None) is None:
        return False
    _save(home, known)
    return True


def trusted_projects(home: Path) -> dict[str, str]:
    """The real path of each trusted project and the hash of the settings it was trusted with."""
    path = home / TRUST_FILE
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise PreflightError(
            f"cannot read {path}: {error}. Delete it, and run agentos trust again in each project"
        ) from error
    return (
        {name: digest for name, digest in found.items() if isinstance(digest, str)}
        if isinstance(found, dict)
        else {}
    )


def _is_safe(price: Price, known: Price | None) -> bool:
    return known is not None and all(
        given >= expected for given, expected in zip(price.rates, known.rates, strict=True)
    )


def _digest(project_file: Path) -> str:
    return hashlib.sha256(read_regular(project_file)).hexdigest()


def _save(home: Path, projects: dict[str, str]) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / TRUST_FILE
    temporary = path.with_name(f".{TRUST_FILE}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    with open(os.open(temporary, flags, 0o600), "w") as file:
        json.dump(dict(sorted(projects.items())), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
