"""Reads and checks a settings file: agentos.toml or config.toml."""

import contextlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentos.core.constants import DISPLAYS, MAX_PARALLEL, REVIEWS
from agentos.core.errors import PreflightError
from agentos.core.quota.budget import Price
from agentos.regular_files import read_regular

FILE_KEYS: dict[str, type] = {
    "drafter": tuple,
    "reviewer": tuple,
    "budget": float,
    "prices": dict,
    "max_iterations": int,
    "timeout": float,
    "retries": int,
    "max_wait": float,
    "parallel": int,
    "keep_runs": int,
    "review": str,
    "display": str,
    "github": str,
}
_CHOICES: dict[str, tuple[str, ...]] = {"review": REVIEWS, "display": DISPLAYS}
# Smallest and largest value; numbers that are not listed start at 0.
_BOUNDS: dict[str, tuple[float, float | None]] = {
    "parallel": (1, MAX_PARALLEL),
    "max_iterations": (1, None),
    "keep_runs": (1, None),
    "timeout": (0.001, None),  # seconds
    "budget": (1e-6, None),  # dollars; less than any call costs
}


def read_file(path: Path, root: Path | None = None) -> dict[str, object]:
    """The settings in the file, checked; none if there is no file. With a `root`, no link may lead to it."""
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
    if kind is dict:
        return _prices(location, value)
    if kind is str:
        return _text(location, value)
    return _number(location, kind, value)


def _number(location: _SettingLocation, kind: type, value: object) -> object:
    if kind is float and type(value) is int:
        with contextlib.suppress(OverflowError):
            value = float(value)
    least, most = _BOUNDS.get(location.name, (0, None))
    # Written so that nan is out of bounds.
    in_bounds = isinstance(value, int | float) and value >= least and (most is None or value <= most)
    if type(value) is kind and in_bounds:
        return value
    noun = "a whole number" if kind is int else "a number"
    raise location.invalid(value, f"{noun} from {least:g}" + ("" if most is None else f" to {most:g}"))


def _models(location: _SettingLocation, value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name for name in names):
        return tuple(names)
    raise location.invalid(value, "a model, or a list of models")


def _text(location: _SettingLocation, value: object) -> str:
    if location.name == "github":
        if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,100}/[\w.-]{1,100}", value, re.ASCII):
            return value
        raise location.invalid(value, '"owner/repository"')
    choices = _CHOICES[location.name]
    if isinstance(value, str) and value in choices:
        return value
    raise location.invalid(value, f"one of {', '.join(choices)}")


def _prices(location: _SettingLocation, value: object) -> tuple[tuple[str, Price], ...]:
    try:
        if not isinstance(value, dict):
            raise TypeError("expected a table")
        return tuple(
            (model, Price(_dollars(price["input"]), _dollars(price["output"])))
            for model, price in value.items()
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PreflightError(
            f'{location}: invalid prices: expected [prices."model"] with input and output'
        ) from error


def _dollars(value: Any) -> float:
    if (price := float(value)) >= 0:
        return price
    raise ValueError(f"{value!r} is not a price")


MAX_LINES = 2000  # lines of a file that are searched


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
