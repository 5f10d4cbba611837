"""Reads Markdown files with TOML or YAML front matter as pages, and pages as items."""

import functools
import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentos.codebase.rendering import estimated_tokens
from agentos.core.planning.items import Item, SkippedFile, SkipReason
from agentos.core.text.line_assembler import one_line
from agentos.regular_files import FileTooLarge, UnsafeFile, list_folder, read_regular

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1024 * 1024
# libyaml recurses in C: a document nested some 20,000 levels deep crashes the process.
MAX_YAML = 8192  # characters
# A line that begins with hashes, or an underlined line of text. A list item, quote, table row or fence before a line of
# dashes is not a heading.
_HEADING = re.compile(
    r"^(?: {0,3}(?P<marks>#{1,6})[ \t]+(?P<hashes>\S.*)"
    r"|(?P<underlined> {0,3}(?![#>|`~+*\s-]|[0-9]+[.)])\S.*)\n {0,3}(?P<line>=+|-+)[ \t]*)$",
    re.MULTILINE,
)
_CODE_FENCE = re.compile(r" {0,3}(?:(?P<backticks>`{3,})[^`]*|(?P<tildes>~{3,}).*)")
# PyYAML raises these for a value that does not match its explicit type tag.
_YAML_VALUE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_NUMBER = re.compile(r"[0-9]{1,9}(?![0-9])")
_ID_NAME = re.compile(r"(?:LLD|ISSUE)-([0-9]{1,9})", re.IGNORECASE)
_DATES = (
    re.compile(
        r"(?:19|20|21)[0-9]{2}(?P<separator>[-_.])(?P<month>[0-9]{1,2})(?P=separator)(?P<day>[0-9]{1,2})(?![0-9])"
    ),
    re.compile(
        r"(?P<day>[0-9]{1,2})(?P<separator>[-_.])(?P<month>[0-9]{1,2})(?P=separator)(?:19|20|21)[0-9]{2}(?![0-9])"
    ),
    re.compile(r"(?:19|20|21)[0-9]{2}(?P<month>[0-9]{2})(?P<day>[0-9]{2})(?![0-9])"),
)
MARKDOWN_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
# Files that look like an issue or a brief; anything else in the folder is an attachment.
_DOCUMENT_SUFFIXES = (*MARKDOWN_SUFFIXES, "", ".mdx", ".txt", ".text", ".rst", ".org", ".adoc")
_TOML_ERROR = re.compile(r"(.*) \(at line (\d+), column \d+\)")
_FIELDS = {"number": "number", "title": "title", "state": "state", "status": "state", "labels": "labels"}
_LIKENESS = 0.8  # of a misspelt field, as difflib measures it: "lables" and "labels" have 0.83
_STATES = ("open", "closed")


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed file.

    `problems` lists why it cannot be a spec; empty for a usable page. `is_readable` is False if the file or its front
    matter cannot be read: number, state and labels are guesses then. `state_problem` says why its state is unknown, if
    it is; `ignored` names fields that are probably misspelt.
    """

    path: Path
    number: int | None
    title: str
    body: str
    digest: str
    is_open: bool = True
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    is_readable: bool = True
    state_problem: str = ""
    ignored: tuple[str, ...] = ()


def read_page(path: Path, root: Path | None = None) -> Page:
    """Never raises because of the file's content: whatever is wrong with it is in `problems`.

    `root` is the project: no folder between it and the file may be a link.
    """
    if not _is_utf8(path.name):
        return _unusable(path, "its name is not UTF-8: rename it")
    try:
        # A link in a downloaded project could send any of the user's files to a model; a pipe may block forever.
        raw = read_regular(path, root, MAX_BYTES)
    except FileTooLarge as error:
        return _unusable(path, f"it has {error.size:,} bytes; a spec has at most {MAX_BYTES:,}")
    except UnsafeFile as error:
        return _unusable(path, f"it cannot be read: {error.problem}")
    except OSError as error:
        return _unusable(path, f"it cannot be read: {error.strerror}")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unusable(
            path, f"line {line}: it is not UTF-8 (byte {error.object[error.start]:#04x}): save it as UTF-8"
        )
    return _page(path, raw, text)


def page_of(path: Path, text: str) -> Page:
    """The page for a text that is not in a file."""
    return _page(path, text.encode("utf-8", "surrogateescape"), text)


def file_number(path: Path) -> int | None:
    """The number that a file's name begins with: 42 for `042-dark-mode.md`. A date is not a number, nor is 0."""
    found = _NUMBER.match(path.stem)
    if found is None or any(_is_date(date.match(path.stem)) for date in _DATES):
        return None
    return int(found[0]) or None


def suggested_number(path: Path) -> int | None:
    """The number of a file, or the one that its name means if it is an id: 7 for `LLD-7.md`, which has no number yet."""
    found = _ID_NAME.fullmatch(path.stem)
    return file_number(path) or (int(found[1]) or None if found else None)


def _is_date(found: re.Match[str] | None) -> bool:
    """Whether it is a date, in either order of day and month."""
    if found is None:
        return False
    month, day = sorted((int(found["month"]), int(found["day"])))
    return 1 <= month <= 12 and day <= 31


def _page(path: Path, raw: bytes, text: str) -> Page:
    front, body, problem = split_front_matter(text)
    problems = [problem] if problem else []
    number = _number(front.get("number"), path, text, problems)
    is_readable = not problems
    heading = _find_heading(body)
    if not body or body.isspace():
        only = "has only front matter" if raw.strip() else "is empty"
        problems.append(f"it {only}: describe what is wanted below a heading")
    elif heading is None:
        problems.append("it has no heading: start with a line such as '# Dark mode'")
    elif not body[heading.end() :].strip() and not body[: heading.start()].strip():
        problems.append(f"nothing follows its heading '{_heading_text(heading)}': describe what is wanted")
    title, state = front.get("title"), front.get("state")
    state_name = state.strip().casefold() if isinstance(state, str) else state
    has_state = state_name in (None, "", *_STATES)
    fallback = _heading_text(heading) if heading else path.stem
    return Page(
        path=path,
        number=number,
        title=one_line(title if isinstance(title, str) and title else fallback),
        body=body,
        digest=hashlib.sha256(raw).hexdigest(),
        is_open=state_name != "closed",
        labels=_labels(front.get("labels")),
        problems=tuple(problems),
        is_readable=is_readable,
        state_problem="" if has_state else _wrong_value("state", state, text, " or ".join(_STATES)),
        ignored=tuple(
            f"{_line_of(name, text)}{name!r} in its front matter is ignored: the field is called {field}"
            for name in front
            if name not in _FIELDS.values() and (field := _meant_field(name)) and field not in front
        ),
    )


def _meant_field(name: str) -> str | None:
    """The field that a name stands for, if it is probably misspelt."""
    from difflib import get_close_matches

    folded = name.casefold()
    if folded in _FIELDS:
        return _FIELDS[folded]
    close = get_close_matches(folded, _FIELDS, 1, _LIKENESS)
    return _FIELDS[close[0]] if close else None


def _find_heading(body: str) -> re.Match[str] | None:
    """The heading that is the title: the first one.

    Dashes below a line may also be meant as a rule, so such a heading gives way to a later one of level 1.
    """
    text = _without_code(body)
    first = _HEADING.search(text)
    if first is None or not (first["line"] or "").startswith("-"):
        return first
    later = (found for found in _HEADING.finditer(text, first.end()))
    return next(
        (found for found in later if found["marks"] == "#" or (found["line"] or "")[:1] == "="), first
    )


def _without_code(body: str) -> str:
    """The body with blanks in place of fenced code, so that all positions stay the same."""
    if "```" not in body and "~~~" not in body:
        return body
    lines, fence = [], ""
    for line in body.split("\n"):
        found = _CODE_FENCE.fullmatch(line)
        mark = (found["backticks"] or found["tildes"]) if found else ""
        is_code = bool(fence or mark)
        if not fence:
            fence = mark
        elif mark.startswith(fence) and line.strip() == mark:
            fence = ""
        lines.append(" " * len(line) if is_code else line)
    return "\n".join(lines)


def _heading_text(heading: re.Match[str]) -> str:
    """Removes the closing hashes that Markdown allows."""
    text = (heading["hashes"] or heading["underlined"]).strip()
    bare = text.rstrip("#")
    return bare.rstrip() if heading["hashes"] and bare.endswith((" ", "\t")) else text


def split_front_matter(text: str) -> tuple[dict[str, object], str, str]:
    """The front matter, the rest, and the problem with the front matter or an empty string."""
    for fence, parse in (("+++", _toml), ("---", _yaml)):
        opened = re.match(rf"{re.escape(fence)}[ \t]*\n", text)
        if opened is None:
            continue
        closed = re.compile(rf"^{re.escape(fence)}[ \t]*(?:\n|\Z)", re.MULTILINE).search(text, opened.end())
        if closed is None:
            return (
                {},
                text,
                f"line 1: the front matter opened by {fence} is not closed: end it with a line {fence}",
            )
        found, problem = parse(text[opened.end() : closed.start()])
        return found, text[closed.end() :], problem
    return {}, text, ""


def _toml(text: str) -> tuple[dict[str, object], str]:
    try:
        return tomllib.loads(text), ""
    except (ValueError, RecursionError) as error:
        parts = _TOML_ERROR.fullmatch(str(error))
        # Counted from the first line of the file, where the opening fence is.
        where, why = (f"line {int(parts[2]) + 1}: ", parts[1]) if parts else ("", error)
        return {}, f"{where}its TOML front matter cannot be read: {why}"


def _yaml(text: str) -> tuple[dict[str, object], str]:
    import yaml

    if len(text) > MAX_YAML:
        return {}, f"its YAML front matter cannot be read: it is longer than {MAX_YAML:,} characters"
    try:
        found = yaml.load(text, Loader=_safe_yaml_loader())  # noqa: S506 - a safe one
    except (yaml.YAMLError, *_YAML_VALUE_ERRORS) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""
        return {}, f"{where}its YAML front matter cannot be read: {getattr(error, 'problem', error)}"
    if found is None:
        return {}, ""
    if not isinstance(found, dict):
        return {}, f"line 2: its YAML front matter is a {type(found).__name__}, expected a mapping"
    return {str(name): value for name, value in found.items()}, ""


@functools.cache
def _safe_yaml_loader() -> "type[yaml.SafeLoader]":
    """A safe loader that reads leading zeros as decimal: in YAML 1.1, 010 is octal and 08 is text."""
    import yaml

    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: type[yaml.SafeLoader] = type("FrontMatterLoader", (base,), {})

    def integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
        text = loader.construct_scalar(node)
        return int(text) if text.isdigit() else loader.construct_yaml_int(node)

    loader.add_constructor("tag:yaml.org,2002:int", integer)
    loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[0-9]+\Z"), list("0123456789"))
    return loader


def _number(value: object, path: Path, text: str, problems: list[str]) -> int | None:
    if value is None:
        return file_number(path)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value
    problems.append(_wrong_value("number", value, text, "a positive integer"))
    return file_number(path)


def _wrong_value(field: str, value: object, text: str, expected: str) -> str:
    shown = repr(value)[:40] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return f"{_line_of(field, text)}{field} = {shown} in its front matter is not {expected}"


def _line_of(field: str, text: str) -> str:
    """`line 2: `, where the front matter has the field; empty if it is not at the beginning of a line."""
    found = re.search(rf"^{re.escape(field)}\s*[:=]", text, re.MULTILINE)
    return f"line {text.count(chr(10), 0, found.start()) + 1}: " if found else ""


def _labels(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(one_line(part.strip()) for part in value.split(",") if part.strip())
    if isinstance(value, list):
        # Only scalars: nested YAML aliases can expand until memory is full.
        return tuple(one_line(str(part)) for part in value if isinstance(part, str | int | float))
    return ()


def in_file(source: str, problem: str) -> str:
    """The problem prefixed with its file, as in `issues/042-dark-mode.md, line 2: ...`."""
    return f"{source}, {problem}" if problem.startswith("line ") else f"{source}: {problem}"


def _unusable(path: Path, problem: str) -> Page:
    return Page(path, file_number(path), one_line(path.stem), "", "", problems=(problem,), is_readable=False)


def _is_utf8(name: str) -> bool:
    """False for a name with bytes that Python could only keep as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def markdown_files(folder: Path, root: Path | None = None) -> list[Path]:
    """The Markdown files directly in a folder, sorted by name; hidden files are ignored.

    `root` is the project: raises UnsafeFile if the folder, or one on the way to it, is a link.
    """
    names = [name for name in list_folder(folder, root) if name.endswith(".md") and name[0] != "."]
    return [path for name in sorted(names) if not _is_folder(path := folder / name)]


def _is_folder(path: Path) -> bool:
    """Whether it is a folder itself. A link to one is an item that fails: it is named, and nothing behind it is read."""
    return path.is_dir() and not path.is_symlink()


def skipped_files(project: Path, folder: str, *, numbered: bool = True) -> list[SkippedFile]:
    """The files of a folder that look like items but are not, each with the reason; a README is expected there.

    Markdown files in its subfolders are among them. Pass `numbered=False` if a file may do without a number.
    """
    names = sorted(name for name in list_folder(project / folder, project) if name[0] != ".")
    documents = (name for name in names if Path(name).suffix.casefold() in _DOCUMENT_SUFFIXES)
    found = (_skipped(project, f"{folder}/{name}", numbered) for name in documents)
    return [*(skipped for skipped in found if skipped), *_in_subfolders(project, folder, names)]


def _in_subfolders(project: Path, folder: str, names: Iterable[str]) -> Iterator[SkippedFile]:
    """At any depth, but behind no link."""
    for name in names:
        path = project / folder / name
        if not _is_folder(path):
            continue
        for inner, folders, files in os.walk(path):
            folders[:] = sorted(each for each in folders if each[0] != ".")
            for file in sorted(files):
                found = Path(inner, file)
                is_markdown = found.suffix.casefold() in MARKDOWN_SUFFIXES and file[0] != "."
                if is_markdown and found.stem.casefold() != "readme":
                    name = found.relative_to(project).as_posix()
                    yield SkippedFile(name, SkipReason.SUBFOLDER, number=suggested_number(found))


def _skipped(project: Path, source: str, numbered: bool) -> SkippedFile | None:
    path = project / source
    number = suggested_number(path)
    if path.stem.casefold() == "readme":
        return None
    if _is_folder(path):
        is_named_so = path.suffix.casefold() in MARKDOWN_SUFFIXES
        return SkippedFile(source, SkipReason.FOLDER, number=number) if is_named_so else None
    if path.suffix != ".md":
        return None if path.is_dir() else SkippedFile(source, SkipReason.SUFFIX, number=number)
    if not numbered or file_number(path) is not None:
        return None
    page = read_page(path, project)
    if page.number is not None:
        return None
    return SkippedFile(
        source, SkipReason.NO_NUMBER if page.is_readable else SkipReason.UNREADABLE, page.problems, number
    )


class WorkflowIdentity(Protocol):
    """The members of a workflow that determine its items' ids."""

    name: str
    prefix: str


def folder_items(workflow: WorkflowIdentity, project: Path, folder: str) -> list[Item]:
    """The numbered Markdown files of a folder as items, in order of number.

    The number comes from the front matter, else from the beginning of the file name. Files without a number are left
    out: `skipped_files` lists them.
    """
    pages = [read_page(path, project) for path in markdown_files(project / folder, project)]
    items = [page_item(workflow, page, page.number, folder) for page in pages if page.number is not None]
    return sorted(items, key=lambda item: (item.number, item.source))


def page_item(workflow: WorkflowIdentity, page: Page, number: int, folder: str) -> Item:
    """The item for a page in a project folder."""
    return Item(
        id=f"{workflow.prefix}-{number}",
        workflow=workflow.name,
        number=number,
        title=page.title,
        source=f"{folder}/{page.path.name}",
        digest=page.digest,
        labels=page.labels,
        source_tokens=estimated_tokens(page.body),
    )
