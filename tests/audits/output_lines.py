"""Finds output quoted in the documentation that the program can no longer write."""

import ast
import functools
import re
from collections.abc import Iterator

from .pages import Page
from .tree import modules

MIN_FIXED_CHARACTERS = 5
OUTPUT = re.compile(r"^\[(?:COORDINATOR|(?:LLD|ISSUE)-\d+)\] (.*)$|^((?:Warning|Error): .*)$")
IN_FILE = re.compile(r"^ *\S+\.md(?:, line \d+)?: ")
VARIABLE = re.compile(r"\bAGENTOS_[A-Z0-9_]+\b")


def unknown_lines(page: Page) -> Iterator[str]:
    """Quoted lines that match no text in the source."""
    for block in page.blocks:
        for line in block.lines:
            if (found := OUTPUT.match(line)) and not _is_written(line, found[1] or found[2]):
                yield line


@functools.cache
def variables() -> set[str]:
    """The AGENTOS_ variables that the source mentions."""
    texts = (
        node.value for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    return {text for text in texts if isinstance(text, str) and VARIABLE.fullmatch(text)}


def _is_written(line: str, text: str) -> bool:
    """As a whole line, after a prefix or a file name, or as the part before the first bar."""
    variants = ([line], [text], [text.strip()], text.split(" | ")[:1], [IN_FILE.sub("", text)])
    return not text.strip() or any(all(_matches(part) for part in variant) for variant in variants)


def _matches(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in _patterns())


@functools.cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """One pattern per string in the source; a placeholder matches anything."""
    texts = {_pattern(node) for tree in modules().values() for node in ast.walk(tree)}
    return tuple(re.compile(text) for text in texts if text)


def _pattern(node: ast.AST) -> str | None:
    match node:
        case ast.JoinedStr(values=parts):
            texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
        case ast.Constant(value=str(text)):
            texts = [text]
        case _:
            return None
    fixed = "".join(str(text) for text in texts if text is not None)
    if len(re.sub(r"^\[COORDINATOR\]|[\s.,:%()-]", "", fixed)) < MIN_FIXED_CHARACTERS or "\n" in fixed:
        return None
    return "".join(".*" if text is None else re.escape(str(text)) for text in texts)
