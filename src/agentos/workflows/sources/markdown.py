"""Markdown files with front matter, read as items."""

import hashlib
import os
import re
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path

from agentos.core.text.line_assembler import one_line

MAX_BYTES = 1024 * 1024
# libyaml composes by recursion, in C: what is nested some 20,000 deep ends the process.
LONGEST_YAML = 8192
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_NOT_WHAT_IT_SAYS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What PyYAML lets through of a value that is not of the type it names."""
_NUMBER = re.compile(r"\d{1,9}")
_IN_FRONT = re.compile(r"(.*) \(at line (\d+), column \d+\)")
_NUMBER_LINE = re.compile(r"^number\s*[:=]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """One file: what its front matter and text say; `problems` say why it cannot be a spec."""

    path: Path
    number: int | None
    title: str
    body: str
    digest: str
    is_open: bool = True
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_page(path: Path) -> Page:
    """Never raises for what is in the file; that is said in `problems`."""
    try:
        state = os.lstat(path)
        if not stat.S_ISREG(state.st_mode):
            # A link in a stranger's project could send any file of ours to a model; a pipe never ends.
            return _unusable(
                path, "it cannot be read: it is a link, a folder or a device; put a file of its own there"
            )
        size = state.st_size
        raw = _content(path) if size <= MAX_BYTES else b""
    except OSError as error:
        return _unusable(path, f"it cannot be read: {error.strerror}")
    if size > MAX_BYTES:
        return _unusable(path, f"it is {size:,} bytes large; at most {MAX_BYTES:,} can be a spec")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unusable(path, f"line {line}: it is not UTF-8 (byte {error.object[error.start]:#04x})")
    return _page(path, raw, text)


def _content(path: Path) -> bytes:
    """Without a file object: there may be ten thousand pages."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, MAX_BYTES):
            content += part
        return content
    finally:
        os.close(descriptor)


def page_of(path: Path, text: str) -> Page:
    """The page of a text that stands in no file."""
    return _page(path, text.encode("utf-8", "surrogateescape"), text)


def file_number(path: Path) -> int | None:
    """The number in a file's name: 42 for `042-dark-mode.md`."""
    found = _NUMBER.search(path.stem)
    return int(found[0]) if found else None


def _page(path: Path, raw: bytes, text: str) -> Page:
    front, body, problem = split_front_matter(text)
    problems = [problem] if problem else []
    heading = _HEADING.search(body)
    if not body or body.isspace():
        problems.append("it is empty: write what is wanted below a heading")
    elif heading is None:
        problems.append("it has no heading: begin with a line such as '# Dark mode'")
    elif not body[heading.end() :].strip() and not body[: heading.start()].strip():
        problems.append(f"nothing follows its heading '{_heading(heading[1])}': write what is wanted")
    title, state = front.get("title"), front.get("state")
    fallback = _heading(heading[1]) if heading else path.stem
    return Page(
        path=path,
        number=_number(front.get("number"), path, text, problems),
        title=one_line(title if isinstance(title, str) and title else fallback),
        body=body,
        digest=hashlib.sha256(raw).hexdigest(),
        is_open=not (isinstance(state, str) and state.casefold() == "closed"),
        labels=_labels(front.get("labels")),
        problems=tuple(problems),
    )


def _heading(text: str) -> str:
    """Without the closing hashes that Markdown allows."""
    text = text.rstrip()
    bare = text.rstrip("#")
    return bare.rstrip() if bare.endswith((" ", "\t")) else text


def split_front_matter(text: str) -> tuple[dict[str, object], str, str]:
    """The front matter, the rest, and what is wrong with the front matter, if anything."""
    for fence, parse in (("+++", _toml), ("---", _yaml)):
        if text.startswith(fence + "\n"):
            end = text.find(f"\n{fence}\n", len(fence))
            if end < 0 and text.endswith(f"\n{fence}"):
                end = len(text) - len(fence) - 1
            if end < 0:
                return {}, text, f"line 1: front matter opened by {fence} is not closed"
            inner, rest = text[len(fence) + 1 : end + 1], text[end + len(fence) + 2 :]
            found, problem = parse(inner)
            return found, rest, problem
    return {}, text, ""


def _toml(text: str) -> tuple[dict[str, object], str]:
    try:
        return tomllib.loads(text), ""
    except (ValueError, RecursionError) as error:
        said = _IN_FRONT.fullmatch(str(error))
        # Counted from the first line of the file, as an editor does.
        where, why = (f"line {int(said[2]) + 1}: ", said[1]) if said else ("", error)
        return {}, f"{where}its TOML front matter cannot be read: {why}"


def _yaml(text: str) -> tuple[dict[str, object], str]:
    import yaml

    if len(text) > LONGEST_YAML:
        return {}, f"its YAML front matter cannot be read: it is over {LONGEST_YAML:,} characters long"
    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - it is the safe one
    except (yaml.YAMLError, *_NOT_WHAT_IT_SAYS) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""
        return {}, f"{where}its YAML front matter cannot be read: {getattr(error, 'problem', error)}"
    if found is None:
        return {}, ""
    if not isinstance(found, dict):
        return {}, f"line 2: its YAML front matter is a {type(found).__name__}, expected names and values"
    return {str(name): value for name, value in found.items()}, ""


def _number(value: object, path: Path, text: str, problems: list[str]) -> int | None:
    if value is None:
        return file_number(path)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
        return value
    shown = repr(value)[:40] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    found = _NUMBER_LINE.search(text)
    where = f"line {text.count(chr(10), 0, found.start()) + 1}: " if found else ""
    problems.append(f"{where}number = {shown} in its front matter is not a whole number over 0")
    return file_number(path)


def _labels(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(one_line(part.strip()) for part in value.split(",") if part.strip())
    if isinstance(value, list):
        # Plain values alone: a nest of aliases, written out, fills the memory.
        return tuple(one_line(str(part)) for part in value if isinstance(part, str | int | float))
    return ()


def in_file(source: str, problem: str) -> str:
    """`issues/042-dark-mode.md, line 2: ...`, where a problem names its line."""
    return f"{source}, {problem}" if problem.startswith("line ") else f"{source}: {problem}"


def _unusable(path: Path, problem: str) -> Page:
    return Page(path, file_number(path), one_line(path.stem), "", "", problems=(problem,))


def markdown_files(folder: Path) -> list[Path]:
    """The Markdown files right in a folder, by name; hidden ones are not for us."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(".md") and entry.name[0] != "."]
    return [folder / name for name in sorted(names)]
