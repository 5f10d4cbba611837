"""Reads the code that a prompt shows, and what a check says about a draft."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentos.offline.rules.markdown import Prompt, code_spans

_SOURCE = re.compile(r"^[\w./-]+\.(?:py|js|ts|go|rs|java|c|cpp|cs|rb|php)$")
_DEFINED = re.compile(r"\b(?:def|class|function|func|fn)\s+(\w+)")
_TESTS = re.compile(r"^(tests?|spec)/:", re.MULTILINE)
_SUGGESTION = re.compile(r"(?:there is no|defines no) `([^`]+)`.*?did you mean `([^`]+)`")


@dataclass(frozen=True, slots=True)
class ShownCode:
    """The file that matches best and a function in it; all empty if no code was shown.

    `tests` is the folder of the project's tests, if it has one at the top.
    """

    main: str = ""
    symbol: str = ""
    tests: str = ""

    def new_module(self, name: str) -> str:
        """The path of a new module beside the best match; without code, only its name."""
        folder, _, last = self.main.rpartition("/")
        suffix = last.rpartition(".")[2]
        return f"{folder}/{name}.{suffix}".lstrip("/") if self.main else name

    def named_in(self, texts: Iterable[str]) -> list[str]:
        """The paths of source files that are set as code in these texts."""
        spans = (span for text in texts for span in code_spans(text))
        return list(dict.fromkeys(span for span in spans if _SOURCE.match(span) and "/" in span))


def read_shown_code(prompt: Prompt) -> ShownCode:
    """A path stands at the beginning of a line, its definitions are indented below it."""
    lines = prompt.code.splitlines()
    tests = _TESTS.search(prompt.project)
    for number, line in enumerate(lines):
        if _SOURCE.match(line) and not re.search(r"(^|/)test", line):
            return ShownCode(line, _first_function(lines[number + 1 :]), tests[1] if tests else "")
    return ShownCode()


def _first_function(lines: Iterable[str]) -> str:
    for line in lines:
        if not line.startswith(" "):
            break
        # Only what stands at the top of its file: a method would need the name of its class.
        if not line.startswith("  ") and (found := _DEFINED.search(line)):
            return found[1]
    return ""


def apply_suggestions(text: str, check: str) -> str:
    """Replaces every name that the check did not find by the one it suggests; a path:symbol by its symbol."""
    for wrong, right in _SUGGESTION.findall(check):
        text = text.replace(f"`{wrong}`", f"`{right.rpartition(':')[2] if ':' not in wrong else right}`")
    return text
