"""Hooks for the documentation site: adds the pages from the top of the repository and unlinks source files."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from properdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
MARKS = re.compile(r"^(```\w+) .*$", re.MULTILINE)
TOP_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}


# The order of reading. A name that ends with / stands for the other pages of that folder, by title.
NAVIGATION: dict[str, tuple[str, ...]] = {
    "": ("index.md", "tutorial.md", "tutorial-own-workflow.md"),
    "How to": (
        "how-to/begin.md",
        "how-to/lld-workflow.md",
        "how-to/issue-workflow.md",
        "how-to/keys.md",
        "how-to/",
    ),
    "Reference": ("reference/cli.md", "reference/settings.md", "reference/"),
    "Explanation": ("explanation/architecture.md", "explanation/", "glossary.md", "security.md"),
    "Reports": ("reports/",),
    "Decisions": ("decisions/",),
    "Project": ("changelog.md", "contributing.md", "security-policy.md"),
}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are kept at the top of the repository, and orders all pages for reading."""
    for name, page in TOP_PAGES.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=_move_into_docs(text)))
    config.nav = _navigation({file.src_uri for file in files.documentation_pages()})
    return files


def _navigation(pages: set[str]) -> list[Any]:
    """The pages by section; those that no section names come last."""
    named = {name for names in NAVIGATION.values() for name in names}
    left = set(pages)
    navigation: list[Any] = []
    for title, names in NAVIGATION.items():
        found: list[str] = []
        for name in names:
            inside = sorted(page for page in left if page.startswith(name) and page not in named)
            found += inside if name.endswith("/") else [name]
        left -= set(found)
        navigation += [{title: found}] if title else found
    return [*navigation, *sorted(left)]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replaces links to source files by their text, and removes the marks for tests, as in `console run`."""
    markdown = MARKS.sub(r"\1", markdown)
    folder = PurePosixPath("docs") / PurePosixPath(page.file.src_uri).parent
    return LINK.sub(lambda found: _site_link(found, folder), markdown)


def _move_into_docs(text: str) -> str:
    """Rewrites the relative links of a top-level page as if the page were in docs/."""
    text = text.replace("](docs/", "](").replace("](LICENSE)", "](../LICENSE)")
    for name, page in TOP_PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def _site_link(found: re.Match[str], folder: PurePosixPath) -> str:
    text, target = found[1], found[2]
    if target.startswith(("https://", "http://", "#")):
        return found[0]
    path, _, anchor = target.partition("#")
    parts: list[str] = []
    for part in (folder / path).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    if parts[:1] == ["docs"] and not path.endswith(".py"):
        return found[0]
    if parts[-1:] and parts[-1] in TOP_PAGES:
        page = TOP_PAGES[parts[-1]]
        return f"[{text}]({'../' * (len(folder.parts) - 1)}{page}{'#' * bool(anchor)}{anchor})"
    return text
