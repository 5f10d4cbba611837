"""The documentation builds as a web site without warnings, broken links or resources from other hosts."""

import importlib.util
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.audits.pages import pages
from tests.audits.tree import ROOT

LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


class Reader(HTMLParser):
    """Collects the links, resources and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if tag in LOADED and found.get(LOADED[tag]):
            self.loads.append(found[LOADED[tag]] or "")


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text("utf-8"))
    return reader


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("properdocs") is None:
        pytest.skip("properdocs is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        [*command, "--config-file", "properdocs.yml"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    wanted = {name.removeprefix("docs/").removesuffix(".md") for name in pages() if name.startswith("docs/")}
    made = {str(path.relative_to(site)).removesuffix(".html") for path in site.rglob("*.html")}
    assert wanted | {"index", "changelog", "contributing", "security-policy"} <= made


def test_the_navigation_begins_with_the_tutorial_and_has_every_page(site: Path) -> None:
    assert not list(site.rglob("__pycache__")) and not list(site.rglob("*.pyc"))
    links = [unquote(urlsplit(link).path) for link in read(site / "index.html").links]
    order = ["tutorial.html", "how-to/begin.html", "reference/cli.html", "explanation/architecture.html"]
    assert [link for link in dict.fromkeys(links) if link in order] == order
    wanted = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html", "index.html"}
    assert wanted <= set(links)


def test_no_link_is_broken(site: Path) -> None:
    seen = {page: read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    dead, checked = [], 0
    for page, reader in seen.items():
        for link in (*reader.links, *reader.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            ids = seen[target].ids if target in seen else set()
            if not target.exists() or (
                parts.fragment and target in seen and unquote(parts.fragment) not in ids
            ):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert checked > 100
    assert not dead, "\n".join(dead[:20])


def test_no_resource_is_loaded_from_another_host(site: Path) -> None:
    foreign = [
        f"{page.name}: {name}"
        for page in site.rglob("*.html")
        for name in read(page).loads
        if urlsplit(name).scheme or urlsplit(name).netloc
    ]
    assert not foreign


def test_code_blocks_are_shown_without_the_marks_for_tests(site: Path) -> None:
    text = (site / "how-to" / "begin.html").read_text("utf-8")
    assert "agentos doctor --offline" in text and "console run" not in text and "```" not in text
