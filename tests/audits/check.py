"""An audit is a list of named checks, each of which reports the problems that it finds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """`rule` holds when `problems` yields nothing."""

    rule: str
    problems: Callable[[], Iterable[str]]


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
        found = list(check.problems())
        passed = passed and not found
        lines.append(f"  {'FAIL' if found else 'ok':<5}{check.rule}")
        lines.extend(f"         {problem}" for problem in found)
    return Report(title, tuple(lines), passed)
