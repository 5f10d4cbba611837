"""Checks a drafted design mechanically: its form, and every path and symbol it names against the index."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentos.codebase.design_document import DesignDocument, FileRow, read_design
from agentos.codebase.grammars import LANGUAGES
from agentos.codebase.rendering import counted
from agentos.codebase.signatures import is_supported

if TYPE_CHECKING:
    from agentos.codebase.index import CodeIndex

SECTIONS = (
    "Context",
    "Requirements",
    "Design",
    "Files",
    "Interfaces",
    "Failure modes",
    "Test plan",
    "Rollout",
    "Open questions",
)
COVERED_IN = ("Design", "Test plan")
MAX_FINDINGS = 40
_LABEL = re.compile(r"\bR\d{1,3}\b")
_LISTED_LABEL = re.compile(r"^\s*[-*]\s+(?:\[[ x]\]\s+)?\**(R\d{1,3})\b", re.MULTILINE)
_CITATION = re.compile(r"^(?P<path>[\w.@+\-/]+\.\w{1,8}):{1,2}(?P<symbol>[A-Za-z_$@][\w.$@]*)(?:\(.*\))?$")
_PATH = re.compile(r"^[\w.@+\-]+(?:/[\w.@+\-]+)+$|^[\w@+\-]+\.\w{1,8}$")
_CALL = re.compile(r"^([A-Za-z_][\w.]*)\(.*\)$")
_ENDPOINT = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE|HEAD) /\S*$")
_CHANGES = ("add", "modify", "delete")


@dataclass(slots=True)
class CheckResult:
    """What a check found. `findings` go back to the drafter; `unchecked` says what could not be checked, and why."""

    findings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    symbols: set[str] = field(default_factory=set)

    @property
    def summary(self) -> str:
        """The result in one line, for the log and for the reviewer."""
        left_out = "".join(f"; not checked: {reason}" for reason in self.unchecked)
        return f"{self.outcome}{left_out}"

    @property
    def outcome(self) -> str:
        """What was found and what it was compared with, without what could not be checked."""
        compared = f"{counted(len(self.paths), 'path')} and {counted(len(self.symbols), 'symbol')} compared with the code"
        found = f"{counted(len(self.findings), 'finding')}" if self.findings else "no findings"
        return f"{found}, {compared}"

    def as_text(self) -> str:
        """The summary and the findings as a list."""
        return "\n".join([f"{self.summary}.", *(f"- {finding}" for finding in self.findings)])


def check_draft(draft: str, issue: str, index: "CodeIndex | None", *, with_form: bool = True) -> CheckResult:
    """Check a design for an issue. Without an index, only its form is checked; `with_form=False` skips that."""
    result = CheckResult()
    design = read_design(draft)
    if with_form:
        _check_sections(design, result)
        _check_requirements(design, issue, result)
        _check_interfaces(design, result)
    else:
        result.unchecked.append("sections and requirements (the project has its own prompt)")
    if index is None:
        result.unchecked.append("paths and symbols (no code is indexed)")
    else:
        _CodeCheck(design, index, result).run()
    result.findings = list(dict.fromkeys(result.findings))[:MAX_FINDINGS]
    return result


def _check_sections(design: DesignDocument, result: CheckResult) -> None:
    headings = [name for name in design.sections if name in SECTIONS]
    missing = [name for name in SECTIONS if name not in headings]
    result.findings += [f"the section `{name}` is missing" for name in missing]
    result.findings += [
        f"the section `{name}` is empty" for name in headings if not design.sections[name].strip()
    ]
    expected = [name for name in SECTIONS if name in headings]
    if headings != expected:
        order = ", ".join(f"`{name}`" for name in expected)
        result.findings.append(f"the sections are not in order: expected {order}")


def _check_requirements(design: DesignDocument, issue: str, result: CheckResult) -> None:
    stated = design.sections.get("Requirements", "")
    asked = list(dict.fromkeys(_LISTED_LABEL.findall(issue)))
    listed = list(dict.fromkeys(_LISTED_LABEL.findall(stated)))
    if not asked:
        result.unchecked.append("whether every requirement of the issue is covered (the issue numbers none)")
    known = set(_LABEL.findall(stated))
    result.findings += [
        f"`Requirements` leaves out {label} of the issue" for label in asked if label not in known
    ]
    for section in COVERED_IN:
        named = set(_LABEL.findall(design.sections.get(section, "")))
        if section in design.sections:
            result.findings += [
                f"`{section}` does not name {label}" for label in listed if label not in named
            ]


def _check_interfaces(design: DesignDocument, result: CheckResult) -> None:
    """Check that calls and endpoints in the flow are listed as interfaces, or exist already as `path:symbol`."""
    known = f"{design.sections.get('Interfaces', '')}\n{design.sections.get('Files', '')}"
    for span in design.flow_spans:
        called, endpoint = _CALL.match(span), _ENDPOINT.match(span)
        # An endpoint counts as listed if its path is; the method may be described in words.
        name = called[1].rpartition(".")[2] if called else span.partition(" ")[2]
        if (called or endpoint) and name not in known and f":{name}" not in design.text:
            result.findings.append(f"the flow uses `{span}`, which `Interfaces` does not list")


class _CodeCheck:
    """Compares what a design names with one snapshot of the code."""

    def __init__(self, design: DesignDocument, index: "CodeIndex", result: CheckResult) -> None:
        self._design = design
        self._index = index
        self._result = result
        self._paths = set(index.paths())
        self._folders = {folder for path in self._paths for folder in _parents(path)} | {""}
        self._added = {row.path for row in design.files if row.change == "add"}
        self._new_symbols = {(row.path, name) for row in design.files for name in row.new_symbols}

    def run(self) -> None:
        if not self._paths:
            self._result.unchecked.append("paths and symbols (the project has no files yet)")
            return
        listed = {row.path for row in self._design.files}
        for row in self._design.files:
            self._check_row(row)
        for span in self._design.code_spans:
            if cited := _CITATION.match(span):
                self._check_citation(cited["path"], cited["symbol"])
            elif span not in listed and self._looks_like_path(span):
                self._check_path(span)

    def _check_row(self, row: FileRow) -> None:
        if row.change not in _CHANGES:
            self._find(f"Files: `{row.path}` has the change `{row.change}`, expected add, modify or delete")
            return
        self._result.paths.add(row.path)
        exists = row.path in self._paths
        if row.change == "add":
            if exists:
                self._find(f"Files: `{row.path}` is to be added, but it exists: write modify")
            elif not self._has_parent(row.path):
                self._find(
                    f"Files: `{row.path}` is to be added, but there is no folder {_parent(row.path)}/"
                    f"{_did_you_mean(self._near_folders(row.path))}"
                )
            return
        if not exists:
            self._find(
                f"Files: there is no `{row.path}` to {row.change}{_did_you_mean(self._near_paths(row.path))}"
            )
            return
        for symbol in row.symbols:
            if symbol not in row.new_symbols:
                self._check_symbol(row.path, symbol)

    def _check_citation(self, path: str, symbol: str) -> None:
        if path in self._paths:
            if not self._is_new(path, symbol):
                self._check_symbol(path, symbol)
        elif path not in self._added:
            self._check_path(path)

    def _check_path(self, path: str) -> None:
        self._result.paths.add(path)
        if path not in self._paths and path not in self._added and path.rstrip("/") not in self._folders:
            suggestion = _did_you_mean(self._near_paths(path))
            self._find(f"there is no `{path}`, and `Files` does not add it{suggestion}")

    def _check_symbol(self, path: str, symbol: str) -> None:
        file = self._index.file(path)
        if file is None or not is_supported(file.language) or file.skipped:
            self._leave_out(f"symbols in {path} (its definitions are not known)")
            return
        self._result.symbols.add(f"{path}:{symbol}")
        names = [definition.name for definition in file.definitions]
        if any(_is_same(name, symbol) for name in names):
            return
        near = difflib.get_close_matches(symbol, names, 2, 0.6) or difflib.get_close_matches(
            symbol.rpartition(".")[2], [name.rpartition(".")[2] for name in names], 2, 0.6
        )
        elsewhere = [other for other in self._index.defining(symbol.rpartition(".")[2], 3) if other != path]
        hint = _did_you_mean(
            [f"{path}:{name}" for name in near] or [f"{other}:{symbol}" for other in elsewhere]
        )
        self._find(f"`{path}` defines no `{symbol}`{hint}")

    def _looks_like_path(self, span: str) -> bool:
        """Whether this is a path to source code, or into an existing folder, rather than an output, a URL or a setting."""
        if not _PATH.match(span) or span.startswith("/"):
            return False
        suffix = span[span.rfind(".") :].lower() if "." in span.rpartition("/")[2] else ""
        if "/" not in span:
            # A bare name such as `reader.py` may refer to a file that is named in full elsewhere.
            return suffix in LANGUAGES and not any(
                path.endswith(f"/{span}") for path in {*self._paths, *self._added}
            )
        return bool(suffix) and (suffix in LANGUAGES or span.partition("/")[0] in self._folders)

    def _is_new(self, path: str, symbol: str) -> bool:
        last = symbol.rpartition(".")[2]
        return any(p == path and _is_same(name, symbol) for p, name in self._new_symbols) or (
            (path, last) in self._new_symbols
        )

    def _has_parent(self, path: str) -> bool:
        """Whether a new file goes into an existing folder, or into a new one directly inside a folder below the root."""
        folder = _parent(path)
        return folder in self._folders or (_parent(folder) in self._folders and _parent(folder) != "")

    def _near_paths(self, path: str) -> list[str]:
        name = path.rpartition("/")[2]
        same_name = sorted(known for known in self._paths if known.rpartition("/")[2] == name)
        return same_name[:2] or difflib.get_close_matches(path, self._candidates(path), 2, 0.6)

    def _candidates(self, path: str) -> Iterable[str]:
        """Paths with the same suffix or in the same folder; comparing with all of 50,000 would take minutes."""
        suffix, folder = path[path.rfind(".") :], f"{_parent(path)}/"
        near = [known for known in self._paths if known.startswith(folder)]
        similar = [known for known in self._paths if known.endswith(suffix)]
        return dict.fromkeys([*near[:1000], *similar[:1000]])

    def _near_folders(self, path: str) -> list[str]:
        folders = difflib.get_close_matches(_parent(path), sorted(self._folders)[:2000], 2, 0.5)
        return [f"{folder}/" for folder in folders if folder]

    def _find(self, text: str) -> None:
        self._result.findings.append(text)

    def _leave_out(self, reason: str) -> None:
        if reason not in self._result.unchecked:
            self._result.unchecked.append(reason)


def _is_same(defined: str, cited: str) -> bool:
    """Whether a citation refers to this definition: its last part is the same, and its other parts enclose it."""
    outer, _, last = cited.rpartition(".")
    around, _, name = defined.rpartition(".")
    if name.lstrip("@$") != last.lstrip("@$"):
        return False
    return all(part in around.split(".") for part in outer.split(".") if part)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parents(path: str) -> Iterable[str]:
    while path := _parent(path):
        yield path


def _did_you_mean(choices: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(f'`{choice}`' for choice in choices)}?" if choices else ""
