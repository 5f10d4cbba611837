"""What the site needs beyond its pages: README as the first page, and links that leave docs/ as plain words."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from properdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
HOME = "index.md"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
MARKS = re.compile(r"^(```\w+) .*$", re.MULTILINE)
OUTSIDE = ("README.md", "CHANGELOG.md")


def on_files(files: Files, config: Any) -> Files:
    """README and CHANGELOG stand above docs/, where people look for them first."""
    for name, page in zip(OUTSIDE, (HOME, "changelog.md"), strict=True):
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=_moved(text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Source files are not part of the site: what leads to one is named, not linked.

    What our tests read behind the language of a block (`console run`) is not for the site.
    """
    markdown = MARKS.sub(r"\1", markdown)
    folder = PurePosixPath("docs") / PurePosixPath(page.file.src_uri).parent
    return LINK.sub(lambda found: _link(found, folder), markdown)


def _moved(text: str) -> str:
    """As if the page stood in docs/."""
    text = text.replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
    return re.sub(r"\]\((?:LICENSE|README\.md)\)", "](../LICENSE)", text)


def _link(found: re.Match[str], folder: PurePosixPath) -> str:
    words, target = found[1], found[2]
    if target.startswith(("https://", "http://", "#")):
        return found[0]
    path, _, anchor = target.partition("#")
    parts: list[str] = []
    for part in (folder / path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    if parts[:1] == ["docs"] and not path.endswith(".py"):
        return found[0]
    if parts[-1:] == ["CHANGELOG.md"]:
        return f"[{words}]({'../' * (len(folder.parts) - 1)}changelog.md{'#' * bool(anchor)}{anchor})"
    return words
