"""Ranks the files of a snapshot for an issue: BM25 over contents and paths, boosted for files that the issue
mentions."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentos.codebase.index import CodeIndex, stem_of
from agentos.codebase.words import words

MAX_TERMS = (
    20  # distinctive words of an issue that are searched for; more would cost time and be less distinctive
)
_FALLBACK_TERMS = 5  # words that are searched for instead if all words of an issue are common
_MAX_LOOKUPS = 80  # distinct words, names or paths of an issue that are looked up in the index
MAX_TEXT = 20_000  # characters of an issue that are read; the rest is usually logs
_COMMON = 0.1  # share of the files; a word in more of them is not distinctive
_COMMON_FILES = 500  # the same as a number of files, for large projects, where every match costs time
_PATH_WEIGHT, _TITLE_WEIGHT = 0.35, 1.2
_SYMBOL_COLUMN, _BODY_COLUMN = 2.0, 1.0
_CANDIDATES = 300
_PATH_BOOST, _MODULE_BOOST, _NAME_BOOST = 1.5, 1.0, 0.25  # added to scores that are at most about 1
_MAX_NAMES = 3  # mentioned definitions in one file that count
_MAX_DEFINED = 6  # files; a name that more files have or define identifies none of them
_TEST_FACTOR, _DOCUMENT_FACTOR = 0.45, 0.35
_TESTS = re.compile(
    r"(^|/)(tests?|testing|spec|specs|__tests__|fixtures|testdata)/|(^|/)test_[^/]*$|_test\.\w+$|\.(test|spec)\.\w+$"
)
_DOCUMENTS = re.compile(
    r"(^|/)(docs?|examples?|benchmarks?|changelog[^/]*)(/|$)|\.(md|rst|txt|ipynb|csv|json|ya?ml|html|cfg|ini|toml|sql)$",
    re.I,
)
_TRACEBACK_PATH = re.compile(r'File "[^"\n]*"|(?:/[\w.-]+){3,}')
_PATH = re.compile(r"[\w.\-/\\]*[\w\-]\.[A-Za-z]\w{0,4}\b")
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]+_\w+|_\w+|[A-Z]?[a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}\w*[a-z]\w*)\b"
)
_QUOTED = re.compile(r"`{1,2}([^`\n]{2,80})`{1,2}")
_CALLED = re.compile(r"\b([A-Za-z_]\w{2,})\(")
_NAME = re.compile(r"[A-Za-z_]\w+")


@dataclass(frozen=True, slots=True)
class Mentions:
    """What an issue names: file paths or parts of them, and identifiers."""

    paths: frozenset[str]
    names: frozenset[str]


@dataclass(slots=True)
class RankedFile:
    """A file, its score and the reasons for it. `path_id` is the id of its path in the index."""

    path_id: int
    path: str
    score: float = 0.0
    reasons: list[str] = field(default_factory=list)


def read_mentions(text: str) -> Mentions:
    text = text[:MAX_TEXT]
    paths = {found.replace("\\", "/").strip("./") for found in _PATH.findall(text)}
    for dotted in _DOTTED.findall(text):
        parts = dotted.split(".")
        # The module in `pkg.module.Class.method` may end at any of the dots.
        paths.update("/".join(parts[:end]) for end in range(2, len(parts) + 1))
    quoted = (name for code in _QUOTED.findall(text) for name in _NAME.findall(code))
    names = {*_IDENTIFIER.findall(text), *quoted, *_CALLED.findall(text)}
    names.update(part for dotted in _DOTTED.findall(text) for part in dotted.split("."))
    return Mentions(frozenset(paths), frozenset(name for name in names if len(name) > 2))


def rank(index: CodeIndex, title: str, text: str) -> list[RankedFile]:
    """The files most likely to matter, best first.

    The words of the title count three times more than those of the text, and are searched for once more on their own.
    """
    text = text[:MAX_TEXT]
    title_words = words(title)
    # The paths in a traceback count as mentions. Their words are left out: they only say where Python is installed.
    terms = _terms(index, Counter([*words(_TRACEBACK_PATH.sub(" ", text)), *(title_words * 3)]))
    files: dict[int, RankedFile] = {}
    _add_contents(index, files, terms, 1.0)
    _add_contents(index, files, _terms(index, Counter(title_words)), _TITLE_WEIGHT)
    _add_paths(index, files, terms)
    _boost(index, files, read_mentions(f"{title}\n{text}"))
    for file in files.values():
        if _TESTS.search(file.path):
            file.score *= _TEST_FACTOR
        elif _DOCUMENTS.search(file.path):
            file.score *= _DOCUMENT_FACTOR
    return sorted(files.values(), key=lambda file: (-file.score, file.path))[:_CANDIDATES]


def _terms(index: CodeIndex, counts: Counter[str]) -> list[str]:
    """The most distinctive words: frequent in the issue, rare in the code."""
    (total,) = index.connection.execute(
        "SELECT count(*) FROM files WHERE snapshot = ?", (index.snapshot,)
    ).fetchone()
    max_files = max(5, min(int(total * _COMMON), _COMMON_FILES))
    distinctive, common = [], []
    for word, count in counts.most_common(_MAX_LOOKUPS):
        (found,) = index.connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM text WHERE text MATCH ? LIMIT ?)",
            (f'"{word}"', max_files + 1),
        ).fetchone()
        if 0 < found <= max_files:
            distinctive.append((min(count, 4) * math.log(1 + total / found), word))
        elif found:
            common.append(word)
    if not distinctive:
        return common[:_FALLBACK_TERMS]
    return [word for _, word in sorted(distinctive, reverse=True)[:MAX_TERMS]]


def _add_contents(
    index: CodeIndex, files: dict[int, RankedFile], terms: Sequence[str], weight: float
) -> None:
    if not terms:
        return
    rows = index.connection.execute(
        "SELECT p.id, p.path, t.score FROM (SELECT rowid AS blob, bm25(text, ?, ?) AS score FROM text"
        " WHERE text MATCH ? ORDER BY score LIMIT ?) t"
        " CROSS JOIN files f ON f.blob = t.blob AND f.snapshot = ? JOIN paths p ON p.id = f.path",
        (_SYMBOL_COLUMN, _BODY_COLUMN, _any_of(terms), 2 * _CANDIDATES, index.snapshot),
    ).fetchall()
    best = max((-score for _, _, score in rows), default=1.0)
    for path_id, path, score in rows:
        file = files.setdefault(path_id, RankedFile(path_id, path))
        file.score += weight * -score / best
        file.reasons.append("words")


def _add_paths(index: CodeIndex, files: dict[int, RankedFile], terms: Sequence[str]) -> None:
    if not terms:
        return
    rows = index.connection.execute(
        "SELECT p.id, p.path, t.score FROM (SELECT rowid AS path_id, bm25(path_text) AS score FROM path_text"
        " WHERE path_text MATCH ? ORDER BY score LIMIT ?) t"
        " CROSS JOIN files f ON f.path = t.path_id AND f.snapshot = ? JOIN paths p ON p.id = t.path_id",
        (_any_of(terms), _CANDIDATES, index.snapshot),
    ).fetchall()
    best = max((-score for _, _, score in rows), default=1.0)
    for path_id, path, score in rows:
        file = files.setdefault(path_id, RankedFile(path_id, path))
        file.score += _PATH_WEIGHT * -score / best
        file.reasons.append("path")


def _boost(index: CodeIndex, files: dict[int, RankedFile], mentions: Mentions) -> None:
    """Raise the scores of files that the issue names, or whose definitions it names."""
    for path_id, path, boost in _mentioned_paths(index, mentions):
        file = files.setdefault(path_id, RankedFile(path_id, path))
        file.score += boost
        file.reasons.append("named")
    by_path = {file.path: file for file in files.values()}
    counts: Counter[str] = Counter()
    for name in sorted(mentions.names)[:_MAX_LOOKUPS]:
        paths = index.defining(name, _MAX_DEFINED + 1)
        if len(paths) > _MAX_DEFINED:
            continue
        for path in paths:
            if path in by_path and counts[path] < _MAX_NAMES:
                counts[path] += 1
                by_path[path].score += _NAME_BOOST
                by_path[path].reasons.append(f"defines {name}")


def _mentioned_paths(index: CodeIndex, mentions: Mentions) -> list[tuple[int, str, float]]:
    """The id, path and boost of each file whose path ends with a mentioned one. The name of a module counts less than a
    path with a suffix."""
    found: dict[int, tuple[int, str, float]] = {}
    for mention in sorted(mentions.paths)[:_MAX_LOOKUPS]:
        last = mention.rpartition("/")[2]
        is_path = "." in last
        candidates = index.with_stem(stem_of(last))
        if "/" not in mention and len(candidates) > _MAX_DEFINED:
            continue  # a name as common as `__init__.py` identifies none
        for path_id, path in candidates:
            stem = path if is_path else path.rpartition(".")[0]
            if mention == stem or stem.endswith(f"/{mention}") or mention.endswith(f"/{stem}"):
                boost = _PATH_BOOST if is_path else _MODULE_BOOST
                if path_id not in found or found[path_id][2] < boost:
                    found[path_id] = (path_id, path, boost)
    return list(found.values())


def _any_of(terms: Sequence[str]) -> str:
    return " OR ".join(f'"{term}"' for term in terms)
