"""Filing an issue into the project's own folder, exactly once."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from agentos.core.protocol.ports import Documents
from agentos.core.text.line_assembler import one_line
from agentos.workflows.sources.markdown import markdown_files, read_page, split_front_matter

ISSUES = "issues"
MOST_FRONT = 16_384
_LABELS = re.compile(r"^#{1,6}[ \t]+Labels[ \t]*$\n+([^\n#]+)", re.MULTILINE | re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,48}")
_HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Filing:
    """What is filed; `origin` is the marker that is looked for before filing again."""

    origin: str
    slug: str
    labels: tuple[str, ...]
    body: str


def file_issue(project: Path, documents: Documents, filing: Filing) -> str:
    """The issue's file: the one that carries this origin's marker, else a new one."""
    with documents.numbering():
        numbers = [0]
        for path in markdown_files(project / ISSUES):
            page = read_page(path)
            numbers.append(page.number or 0)
            if _origin(path) == filing.origin:
                return f"{ISSUES}/{path.name}"
        number = max([*numbers, *_designed(project)]) + 1
        name = f"{ISSUES}/{number:03}-{filing.slug}.md"
        documents.write(name, _content(number, filing).encode())
        return name


def _designed(project: Path) -> list[int]:
    """Numbers that have a design, also when their issue is gone: a new issue must not take it over."""
    found = (
        re.fullmatch(r"LLD-(\d{1,9})\.md", path.name) for path in (project / "docs/lld").glob("*/LLD-*.md")
    )
    return [int(name[1]) for name in found if name]


def slug_of(file_name: str) -> str:
    """A safe name from the brief's own file name; a model's words never choose a path."""
    words = re.sub(r"^\d+", "", Path(file_name).stem)
    return re.sub(r"[^a-z0-9]+", "-", words.casefold()).strip("-")[:60] or "issue"


def _origin(path: Path) -> str | None:
    """The marker, read line by line: it is found whatever else is wrong in the front matter."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(MOST_FRONT).split("\n---", 1)[0].splitlines()
    except OSError:
        return None
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("origin:")]
    return found[0].strip('"') if found else None


def without_front(body: str) -> str:
    return split_front_matter(body)[1]


def title_of(body: str, fallback: str) -> str:
    heading = _HEADING.search(body)
    return one_line(heading[1]).strip() if heading else fallback


def labels_of(filing: Filing) -> list[str]:
    """Those of the brief, then those that the draft names."""
    return list(dict.fromkeys([*filing.labels, *_labels(without_front(filing.body))]))


def _labels(body: str) -> list[str]:
    """What the draft's own section of labels names, as far as it can be a label."""
    section = _LABELS.search(body)
    words = re.split(r"[,;]", section[1]) if section else []
    return [word for part in words if _LABEL.fullmatch(word := part.strip(" -*`\t"))]


def _content(number: int, filing: Filing) -> str:
    body = without_front(filing.body)
    front = {
        "number": number,
        "title": title_of(body, filing.slug),
        "state": "open",
        "labels": labels_of(filing),
        "origin": filing.origin,
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    return "\n".join(["---", *lines, "---", "", body.strip("\n"), ""])
