"""An audit: named checks, each of which gives what it objects to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """`promise` is what holds when `objections` gives nothing."""

    promise: str
    objections: Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    lines: tuple[str, ...]
    passed: bool

    def __str__(self) -> str:
        return "\n".join([self.title, *self.lines, f"{self.title}: {'PASS' if self.passed else 'FAIL'}"])


def audit(title: str, checks: Iterable[Check]) -> Report:
    lines, passed = [], True
    for check in checks:
        found = list(check.objections())
        passed = passed and not found
        lines.append(f"  {'FAIL' if found else 'ok':<5}{check.promise}")
        lines.extend(f"         {objection}" for objection in found)
    return Report(title, tuple(lines), passed)
