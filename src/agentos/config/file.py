"""What a settings file may say."""

import contextlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentos.core.constants import DISPLAYS, MAX_PARALLEL, REVIEWS
from agentos.core.errors import PreflightError
from agentos.core.quota.budget import Price
from agentos.core.text.toml_lines import line_in
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
_WORDS: dict[str, tuple[str, ...]] = {"review": REVIEWS, "display": DISPLAYS}
# A millionth of a dollar is less than any call costs.
_BOUNDS: dict[str, tuple[float, float | None]] = {
    "parallel": (1, MAX_PARALLEL),
    "max_iterations": (1, None),
    "keep_runs": (1, None),
    "timeout": (0.001, None),
    "budget": (1e-6, None),
}


def read_file(path: Path, root: Path | None = None) -> dict[str, object]:
    """The settings in the file, each checked; a missing file has none. With a `root`, no link may lead to it."""
    try:
        text = read_regular(path, root).decode("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path} cannot be read: {error}") from error
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PreflightError(f"{path}: {error}") from error
    return {name: _checked(_SettingLocation(path, text, name), name, value) for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class _SettingLocation:
    """A setting's file and line, for whoever has to mend it."""

    path: Path
    text: str
    name: str

    def __str__(self) -> str:
        line = line_in(self.text, self.name)
        return f"{self.path}, line {line}" if line else str(self.path)


def _checked(place: _SettingLocation, name: str, value: object) -> object:
    kind = FILE_KEYS.get(name)
    if kind is None:
        raise PreflightError(f"{place}: unknown setting {name!r}; known: {', '.join(FILE_KEYS)}")
    if kind is tuple:
        return _models(place, name, value)
    if kind is dict:
        return _prices(place, value)
    if kind is str:
        return _word(place, name, value)
    if kind is float and type(value) is int:
        with contextlib.suppress(OverflowError):
            value = float(value)
    least, most = _BOUNDS.get(name, (0, None))
    # Compared so that what is not a number (nan) is not within.
    within = isinstance(value, int | float) and value >= least and (most is None or value <= most)
    if type(value) is kind and within:
        return value
    word = "a whole number" if kind is int else "a number"
    end = "on" if most is None else f"to {most:g}"
    raise PreflightError(f"{place}: {name} = {value!r} is not what was expected: {word} from {least:g} {end}")


def _models(place: _SettingLocation, name: str, value: object) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and words and all(isinstance(word, str) and word for word in words):
        return tuple(words)
    raise PreflightError(
        f"{place}: {name} = {value!r} is not what was expected: a model, or a list of models"
    )


def _word(place: _SettingLocation, name: str, value: object) -> str:
    if name == "github":
        return _repository(place, value)
    if isinstance(value, str) and value in _WORDS[name]:
        return value
    raise PreflightError(
        f"{place}: {name} = {value!r} is not what was expected: one of {', '.join(_WORDS[name])}"
    )


def _repository(place: _SettingLocation, value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,100}/[\w.-]{1,100}", value, re.ASCII):
        return value
    raise PreflightError(f'{place}: github = {value!r} is not what was expected: "owner/repository"')


def _prices(place: _SettingLocation, value: object) -> tuple[tuple[str, Price], ...]:
    try:
        if not isinstance(value, dict):
            raise TypeError("expected a table")
        return tuple(
            (name, Price(_dollars(one["input"]), _dollars(one["output"]))) for name, one in value.items()
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PreflightError(
            f'{place}: prices are not what was expected: [prices."model"] with input and output'
        ) from error


def _dollars(value: Any) -> float:
    if (price := float(value)) >= 0:
        return price
    raise ValueError(f"{value!r} is no price")
