"""Parses a drafted design: its sections, its table of files, and everything in back-quotes."""

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^##[ \t]+(?:\d+[.)]\s*)?(.+?)[ \t#]*$", re.MULTILINE)
_SUBSECTION = re.compile(r"^###[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]{1,200})`(?!`)")
_ROW = re.compile(r"^\s*\|(.+)\|\s*$", re.MULTILINE)
_RULE = re.compile(r"^[\s:|-]+$")
_NEW = re.compile(r"`([^`]+)`\s*\(new\)|`([^`]+?)\s*\(new\)`|\bnew:?\s+`([^`]+)`", re.IGNORECASE)
_SIGNATURE = re.compile(r"\(.*$")


@dataclass(frozen=True, slots=True)
class FileRow:
    """One row of the table of files. `new_symbols` are those of `symbols` that the change adds."""

    path: str
    change: str
    symbols: tuple[str, ...]
    new_symbols: frozenset[str]


@dataclass(frozen=True, slots=True)
class DesignDocument:
    """A parsed design. `code_spans` and `flow_spans` are the texts in back-quotes, outside fenced blocks."""

    text: str
    sections: dict[str, str]
    files: tuple[FileRow, ...]
    code_spans: tuple[str, ...]
    flow_spans: tuple[str, ...]


def read_design(text: str) -> DesignDocument:
    prose = _FENCE.sub("", text)
    # Sections keep their fenced blocks, so that one with only code is not empty; headings in code do not count.
    sections = _split(text, _SECTION)
    flow = next(
        (body for name, body in _split(sections.get("Design", ""), _SUBSECTION).items() if name == "Flow"), ""
    )
    return DesignDocument(
        text=prose,
        sections=sections,
        files=_file_rows(sections.get("Files", "")),
        code_spans=tuple(dict.fromkeys(span.strip() for span in _SPAN.findall(prose))),
        flow_spans=tuple(dict.fromkeys(span.strip() for span in _SPAN.findall(_FENCE.sub("", flow)))),
    )


def _split(text: str, heading: re.Pattern[str]) -> dict[str, str]:
    fenced = [match.span() for match in _FENCE.finditer(text)]
    found = [
        match
        for match in heading.finditer(text)
        if not any(start < match.start() < end for start, end in fenced)
    ]
    ends = [*(match.start() for match in found[1:]), len(text)]
    sections: dict[str, str] = {}
    for match, end in zip(found, ends, strict=False):
        sections.setdefault(match[1].strip(), text[match.end() : end])
    return sections


def _file_rows(section: str) -> tuple[FileRow, ...]:
    rows = []
    for line in _ROW.findall(section):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        path = cells[0].strip("` ")
        if len(cells) < 2 or not path or _RULE.match(line) or path.casefold() in ("path", "file"):
            continue
        rows.append(_file_row(path, cells[1], cells[2] if len(cells) > 2 else ""))
    return tuple(rows)


def _file_row(path: str, change: str, cell: str) -> FileRow:
    new = frozenset(_bare("".join(groups)) for groups in _NEW.findall(cell))
    symbols = tuple(dict.fromkeys(_bare(span) for span in _SPAN.findall(cell)))
    return FileRow(path, change.strip("`* ").casefold(), tuple(filter(None, symbols)), new)


def _bare(span: str) -> str:
    """The bare symbol: `Reader.render(self)` and `reader.py:Reader.render` both become `Reader.render`."""
    text = _SIGNATURE.sub("", span.strip()).strip()
    return re.split(r":{1,2}", text)[-1].split()[-1] if text else ""
