"""Extracts the definitions of a source file and their signatures, with tree-sitter if it is installed."""

import functools
import importlib
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentos.codebase.grammars import GRAMMARS, LANGUAGES

if TYPE_CHECKING:
    import tree_sitter

MAX_SIGNATURE = 240  # characters
_MAX_VALUE = 72  # characters of an assignment
_SPACES = re.compile(r"\s+")
MISSING_EXTRA = (
    "signatures need tree-sitter: only paths and full-text ranking are used. "
    "Install it with: pip install 'agentos-runner[code]'"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A name that a file defines: `name` with its enclosing definitions, as in `Pool.acquire`.

    `depth` is their number. `signature` is empty for a name that a draft may mention but that is not shown to the model, such
    as an attribute.
    """

    name: str
    depth: int
    signature: str


def language_of(path: str) -> str:
    """The language of a file that can have definitions; empty for all others."""
    dot = path.rfind(".")
    return LANGUAGES.get(path[dot:].lower(), "") if dot > path.rfind("/") else ""


def has_signatures() -> bool:
    """Whether the extra `code` is installed."""
    return importlib.util.find_spec("tree_sitter") is not None


def is_supported(language: str) -> bool:
    """Whether the definitions of this language can be extracted here."""
    return bool(language) and _extractor(language) is not None


def definitions(content: bytes, language: str) -> list[Definition]:
    """The definitions in file order; none if the language is not supported."""
    extractor = _extractor(language) if language else None
    return extractor.extract(content) if extractor else []


class _Extractor:
    def __init__(self, language: "tree_sitter.Language", query: str) -> None:
        import tree_sitter

        self._parser = tree_sitter.Parser(language)
        self._query = tree_sitter.Query(language, query)
        self._new_cursor = tree_sitter.QueryCursor

    def extract(self, content: bytes) -> list[Definition]:
        tree = self._parser.parse(content)
        found: dict[tuple[int, int], tuple[int, int, str, str]] = {}
        for _, captures in self._new_cursor(self._query).matches(tree.root_node):
            is_member = "member" in captures
            node = captures["member" if is_member else "def"][0]
            name = captures["name"][0]
            end = captures["body"][0].start_byte if "body" in captures else node.end_byte
            key = (node.start_byte, name.start_byte)
            # Of two patterns that match the same definition, the one that knows its body is more specific.
            if key not in found or "body" in captures:
                signature = "" if is_member else _signature(content, node.start_byte, end, "body" in captures)
                found[key] = (node.start_byte, node.end_byte, _text(content, name), signature)
        return _nested(sorted(found.values()))


def _nested(found: list[tuple[int, int, str, str]]) -> list[Definition]:
    """Qualify each name by the definitions around it."""
    result, around = [], list[tuple[int, str]]()
    for _, end, name, signature in found:
        while around and end > around[-1][0]:
            around.pop()
        result.append(Definition(".".join([*(outer for _, outer in around), name]), len(around), signature))
        if signature:
            around.append((end, name))
    return result


def _signature(content: bytes, start: int, end: int, has_body: bool) -> str:
    text = content[start:end].decode("utf-8", "replace")
    if not has_body:
        text = text.lstrip().split("\n", 1)[0]
        return _shortened(text.rstrip().rstrip("{;").rstrip(), _MAX_VALUE)
    return _shortened(_SPACES.sub(" ", text).rstrip().removesuffix("=>").rstrip("{: "), MAX_SIGNATURE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(content: bytes, node: "tree_sitter.Node") -> str:
    return content[node.start_byte : node.end_byte].decode("utf-8", "replace")[:120]


@functools.cache
def _extractor(language: str) -> _Extractor | None:
    grammar = GRAMMARS[language]
    try:
        import tree_sitter

        package = importlib.import_module(grammar.package)
    except ImportError:
        return None
    return _Extractor(tree_sitter.Language(getattr(package, grammar.function)()), grammar.query)
