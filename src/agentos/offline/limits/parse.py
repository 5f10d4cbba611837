"""Reads limits as they are written on the command line."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentos.offline.limits.limiter import OfflineLimits
from agentos.offline.limits.windows import WindowKind

EXAMPLE = "key-1:rpm=10,tpm=20000,concurrency=2"


@dataclass(frozen=True, slots=True)
class NamedLimits:
    name: str
    limits: OfflineLimits


def parse_limits(text: str, usual: OfflineLimits) -> NamedLimits:
    """NAME:WORD=VALUE,...; what is not named is as usual, `none` lifts a limit."""
    name, _, words = text.rpartition(":")
    if not (name and words):
        raise ValueError(f"a limit is written KEY:WORD=VALUE,..., such as {EXAMPLE}; found: {text}")
    limits = usual
    for word in words.split(","):
        limits = _with(limits, word)
    return NamedLimits(name, limits)


def _with(limits: OfflineLimits, word: str) -> OfflineLimits:
    name, _, value = word.partition("=")
    if name not in WORDS:
        raise ValueError(f"a limit's words are {', '.join(WORDS)}, as in {EXAMPLE}; found: {word}")
    try:
        return WORDS[name](limits, value)
    except ValueError as error:
        raise ValueError(
            f"a limit is a positive number or none, a window {', '.join(WindowKind)}; found: {word}"
        ) from error


def _whole(value: str) -> int | None:
    if value == "none":
        return None
    number = int(value)
    if number < 1:
        raise ValueError(value)
    return number


def _seconds(value: str) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(value)
    return number


WORDS: dict[str, Callable[[OfflineLimits, str], OfflineLimits]] = {
    "rpm": lambda limits, value: replace(limits, rate=_whole(value)),
    "rpd": lambda limits, value: replace(limits, per_day=_whole(value)),
    "tpm": lambda limits, value: replace(limits, tokens=_whole(value)),
    "itpm": lambda limits, value: replace(limits, input_tokens=_whole(value)),
    "otpm": lambda limits, value: replace(limits, output_tokens=_whole(value)),
    "concurrency": lambda limits, value: replace(limits, concurrency=_whole(value)),
    "burst": lambda limits, value: replace(limits, burst=_whole(value)),
    "seconds": lambda limits, value: replace(limits, seconds=_seconds(value)),
    "window": lambda limits, value: replace(limits, window=WindowKind(value)),
}
