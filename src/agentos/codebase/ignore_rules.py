"""Reads .gitignore files, for a project that is not in a git repository."""

import re
from dataclasses import dataclass
from pathlib import Path

from agentos.regular_files import UnsafeFile, read_regular

_ALWAYS = (
    ".git/",
    "node_modules/",
    ".venv/",
    "venv/",
    "__pycache__/",
    ".tox/",
    "*.egg-info/",
    ".hg/",
    ".svn/",
)
_MAX_RULES = 2000  # per folder


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    pattern: re.Pattern[str]
    is_negated: bool
    folders_only: bool


class IgnoreRules:
    """The rules that apply in one folder: those of its parents, then its own. The last matching rule decides."""

    def __init__(self, rules: tuple[_IgnoreRule, ...] | None = None) -> None:
        self._rules = tuple(filter(None, (_rule(line, "") for line in _ALWAYS))) if rules is None else rules

    def entering(self, root: Path, folder: str) -> "IgnoreRules":
        """The rules inside `folder`, a path relative to `root` that is empty for the root itself."""
        try:
            text = read_regular(root / folder / ".gitignore", root).decode("utf-8", "replace")
        except (OSError, UnsafeFile):
            return self
        lines = text.splitlines()[:_MAX_RULES]
        own = tuple(filter(None, (_rule(line, f"{folder}/" if folder else "") for line in lines)))
        return IgnoreRules((*self._rules, *own)) if own else self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        for rule in reversed(self._rules):
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path):
                return not rule.is_negated
        return False


def _rule(line: str, base: str) -> _IgnoreRule | None:
    text = line.rstrip()
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!").removeprefix("\\")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    # A slash before the end anchors the pattern to the folder of its file; otherwise it applies at any depth below.
    anywhere = "" if "/" in text else "(?:.*/)?"
    return _IgnoreRule(
        re.compile(re.escape(base) + anywhere + _glob(text.removeprefix("/"))), is_negated, folders_only
    )


def _glob(text: str) -> str:
    """A regular expression for a pattern in which * and ? stay within one folder and ** crosses folders."""
    parts = re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?|\[[^\]/]+\])", text)
    translated = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(translated.get(part) or _literal_or_class(part) for part in parts)


def _literal_or_class(part: str) -> str:
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        negation = "^" if part[1] in "!^" else ""
        return f"[{negation}{re.escape(part[1 + len(negation) : -1]).replace(chr(92) + '-', '-')}]"
    return re.escape(part)
