"""Reads and checks a settings file, agentos.toml or config.toml, and the built-in price list."""

import contextlib
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from agentos.core.constants import AUTO_PARALLEL, DISPLAYS, HIGHEST_MAX_PARALLEL, NOTIFICATIONS, REVIEWS
from agentos.core.errors import PreflightError
from agentos.core.quota.budget import Price, PriceList
from agentos.regular_files import read_regular


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value for one role or model, or with an empty name for all."""

    name: str
    value: int | str

    def __str__(self) -> str:
        return f"{self.name}: {self.value}" if self.name else str(self.value)


@dataclass(frozen=True, slots=True)
class OwnRole:
    """A role of the user's own graphs, and its models in order of preference."""

    name: str
    models: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.models)}"


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The `[fleet]` table: the project's name in the fleet, and the gateway's address."""

    project: str = ""
    gateway: str = ""

    def __str__(self) -> str:
        found = (("project", self.project), ("gateway", self.gateway))
        return ", ".join(f"{name}: {value}" for name, value in found if value)


MAX_CODE_TOKENS = 1_000_000
FILE_KEYS: dict[str, type] = {
    "drafter": tuple,
    "reviewer": tuple,
    "roles": OwnRole,
    "budget": float,
    "prices": dict,
    "max_iterations": int,
    "timeout": float,
    "retries": int,
    "max_wait": float,
    "parallel": int,
    "max_parallel": int,
    "keep_runs": int,
    "review": str,
    "display": str,
    "on_done": str,
    "notify": str,
    "github": str,
    "max_output_tokens": NamedValue,
    "effort": NamedValue,
    "call_timeout": NamedValue,
    "code_tokens": int,
    "context": list,
    "fleet": FleetSettings,
}
EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
ROLES = ("drafter", "reviewer")
_ROLE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CHOICES: dict[str, tuple[str, ...]] = {"review": REVIEWS, "display": DISPLAYS, "notify": NOTIFICATIONS}
# Smallest and largest value; numbers that are not listed start at 0.
_BOUNDS: dict[str, tuple[float, float | None]] = {
    "parallel": (1, HIGHEST_MAX_PARALLEL),
    "max_parallel": (1, HIGHEST_MAX_PARALLEL),
    "max_iterations": (1, None),
    "keep_runs": (1, None),
    "timeout": (0.001, None),  # seconds
    "code_tokens": (0, MAX_CODE_TOKENS),
    "budget": (1e-6, None),  # dollars; less than any call costs
    "max_output_tokens": (16, 10_000_000),
    "call_timeout": (1, 86_400),  # seconds
}
_FLEET_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
MAX_LINES = 2000  # lines of a file that are searched


def read_file(path: Path, root: Path | None = None) -> dict[str, object]:
    """The settings in the file, checked; empty if there is no file. With a `root`, links below it are refused."""
    try:
        text = read_regular(path, root).decode("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise PreflightError(f"cannot read {path}: {error}") from error
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{path}: {error}") from error
    return {name: _check(_SettingLocation(path, text, name), value) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class _SettingLocation:
    """Where a setting is, for error messages."""

    path: Path
    text: str
    name: str

    def invalid(self, value: object, expected: str) -> PreflightError:
        return PreflightError(f"{self}: invalid {self.name} = {value!r}: expected {expected}")

    def __str__(self) -> str:
        line = line_in(self.text, self.name)
        return f"{self.path}, line {line}" if line else str(self.path)


def _check(location: _SettingLocation, value: object) -> object:
    kind = FILE_KEYS.get(location.name)
    if kind is None:
        raise PreflightError(f"{location}: unknown setting {location.name!r}; known: {', '.join(FILE_KEYS)}")
    if kind is tuple:
        return _models(location, value)
    if kind is list:
        return _paths(location, value)
    if kind is dict:
        return _prices(location, value)
    if kind is OwnRole:
        return _own_roles(location, value)
    if kind is FleetSettings:
        return _fleet(location, value)
    if kind is NamedValue:
        return _named_values(location, value)
    if kind is str:
        return _text(location, value)
    if location.name == "parallel" and value == "auto":
        return AUTO_PARALLEL
    return _number(location, kind, value)


def _number(location: _SettingLocation, kind: type, value: object) -> object:
    if kind is float and type(value) is int:
        with contextlib.suppress(OverflowError):
            value = float(value)
    least, most = _BOUNDS.get(location.name, (0, None))
    # Written this way, nan is out of bounds.
    in_bounds = isinstance(value, int | float) and value >= least and (most is None or value <= most)
    if type(value) is kind and in_bounds:
        return value
    noun = "a whole number" if kind is int else "a number"
    or_auto = ', or "auto"' if location.name == "parallel" else ""
    bound = "" if most is None else f" to {most:g}"
    raise location.invalid(value, f"{noun} from {least:g}{bound}{or_auto}")


def _named_values(location: _SettingLocation, value: object) -> tuple[NamedValue, ...]:
    """One value for all, or a table with one for each role of the file (`call_timeout`: for each model)."""
    table = value if isinstance(value, dict) else {"": value}
    by_model = location.name == "call_timeout"
    own = tomllib.loads(location.text).get("roles")
    roles = (*ROLES, *(own if isinstance(own, dict) else ()))
    for name in table:
        if name and not by_model and name not in roles:
            raise location.invalid(value, f"a table with {' and '.join(roles)}, or one value for all")
    return tuple(NamedValue(name, _role_value(location, single)) for name, single in table.items())


def _role_value(location: _SettingLocation, value: object) -> int | str:
    if location.name == "effort":
        if type(value) is int and value > 0:
            return str(value)
        if isinstance(value, str) and value in EFFORTS:
            return value
        raise location.invalid(value, f"one of {', '.join(EFFORTS)}, or a number of thinking tokens")
    number = _number(location, int, value)
    assert isinstance(number, int)
    return number


def _fleet(location: _SettingLocation, value: object) -> FleetSettings:
    table = value if isinstance(value, dict) else {"": value}
    if unknown := [name for name in table if name not in ("project", "gateway")]:
        raise location.invalid(unknown[0], "a table with project and gateway")
    project, gateway = table.get("project", ""), table.get("gateway", "")
    if not isinstance(project, str) or (project and not _FLEET_PROJECT.fullmatch(project)):
        raise location.invalid(project, "a project name of letters, digits, - and _, at most 40")
    if not isinstance(gateway, str) or not gateway.isprintable():
        raise location.invalid(gateway, "the gateway's address, such as https://10.0.0.5:8484")
    return FleetSettings(project, gateway.rstrip("/"))


def _models(location: _SettingLocation, value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name for name in names):
        return tuple(names)
    raise location.invalid(value, "a model, or a list of models")


def _own_roles(location: _SettingLocation, value: object) -> tuple[OwnRole, ...]:
    example = 'a table such as [roles] with planner = "gemini/gemini-2.5-flash"'
    if not isinstance(value, dict):
        raise location.invalid(value, example)
    if wrong := [name for name in value if name in ROLES or not _ROLE_NAME.fullmatch(name)]:
        raise location.invalid(wrong[0], f"{example}; {' and '.join(ROLES)} are separate settings")
    return tuple(OwnRole(name, _models(location, models)) for name, models in value.items())


def _paths(location: _SettingLocation, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(path, str) and is_project_path(path) for path in value):
        return tuple(value)
    raise location.invalid(value, "a list of files, as paths from the project's folder")


def is_project_path(path: str) -> bool:
    """Whether a path stays inside the project that it is relative to."""
    parts = path.split("/")
    return bool(path) and not path.startswith(("/", "~")) and ".." not in parts and "." not in parts


def _text(location: _SettingLocation, value: object) -> str:
    if location.name == "github":
        if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,100}/[\w.-]{1,100}", value, re.ASCII):
            return value
        raise location.invalid(value, '"owner/repository"')
    if location.name == "on_done":
        if isinstance(value, str) and value.isprintable():
            return value
        raise location.invalid(value, "a command line")
    choices = _CHOICES[location.name]
    if isinstance(value, str) and value in choices:
        return value
    raise location.invalid(value, f"one of {', '.join(choices)}")


def _prices(location: _SettingLocation, value: object) -> tuple[tuple[str, Price], ...]:
    try:
        if not isinstance(value, dict):
            raise TypeError("expected a table")
        return tuple(
            (model, Price(**{name: _dollars(dollars) for name, dollars in price.items()}))
            for model, price in value.items()
        )
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise PreflightError(
            f'{location}: invalid prices: expected [prices."model"] with input and output, and, if the model has '
            "a prompt cache, cache_read, cache_write and cache_write_long"
        ) from error


def _dollars(value: Any) -> float:
    if (price := float(value)) >= 0:
        return price
    raise ValueError(f"{value!r} is not a price")


def line_in(text: str, name: str) -> int | None:
    """Return the line of a top-level setting; None if it is not set, 0 if its line cannot be determined.

    The text is parsed line by line until the setting appears; it starts after the last line up to which the
    text was valid without it.
    """
    lines = text.splitlines()
    if name not in tomllib.loads("\n".join(lines)):
        return None
    last_valid = 0
    for number in range(1, min(len(lines), MAX_LINES) + 1):
        try:
            settings = tomllib.loads("\n".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue
        if name in settings:
            return last_valid + 1
        last_valid = number
    return 0


def price_list(overrides: tuple[tuple[str, Price], ...] = ()) -> PriceList:
    """The shipped prices; `overrides` from the settings take precedence."""
    table = tomllib.loads((resources.files("agentos.config") / "prices.toml").read_text("utf-8"))
    shipped = {name: Price(**entry) for name, entry in table.items() if name != "date"}
    return PriceList(tuple({**shipped, **dict(overrides)}.items()))
