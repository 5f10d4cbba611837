"""Small projects for the tests of the code index."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentos.codebase.context import CONVENTIONS
from agentos.codebase.index import CodeIndex
from agentos.codebase.indexing import IndexJob, update_index
from agentos.codebase.source_files import ProjectSource, Snapshot

READER = '''"""Shows an article."""

THEMES = ("light", "dark")


class ArticleReader:
    def __init__(self, store: "Store") -> None:
        self.store = store

    def render_article(self, article_id: int, *, theme: str = "light") -> str:
        return self.store.load_article(article_id)


def choose_theme(preferred: str) -> str:
    return preferred if preferred in THEMES else "light"
'''
STORE = '''"""Keeps articles."""


class Store:
    def load_article(self, article_id: int) -> str:
        return ""

    def search_articles(self, query: str) -> list[int]:
        return []
'''
FILES = {
    "app/__init__.py": "",
    "app/reader.py": READER,
    "app/storage/__init__.py": "",
    "app/storage/store.py": STORE,
    "static/reader.css": "body { color: black }\n",
    "README.md": "# An example\n",
}


def make_project(folder: Path, files: Mapping[str, str | bytes] = FILES) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def clean_environment() -> dict[str, str]:
    """Without the variables of a git hook that may be running these tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def commit_all(folder: Path) -> str:
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change")
    return git(folder, "rev-parse", "HEAD")


def snapshot_of(folder: Path) -> Snapshot:
    return ProjectSource(folder, clean_environment()).take_snapshot()


@contextlib.contextmanager
def indexed(folder: Path, database: Path, named: tuple[str, ...] = ()) -> Iterator[CodeIndex]:
    source = ProjectSource(folder, clean_environment())
    snapshot = source.take_snapshot()
    update_index(IndexJob(database, source, snapshot, (*named, *CONVENTIONS)), lambda done, total: None)
    with CodeIndex(database, snapshot.name) as index:
        yield index
