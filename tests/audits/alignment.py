"""0817, the documentation alignment audit: what the pages say is so."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from agentos.config.file import FILE_KEYS
from agentos.core.protocol import events
from agentos.core.scheduling.shutdown import EXIT_CODES
from agentos.storage.credentials import reader

from . import commands, inventory, wordings
from .check import Check, Report, audit
from .pages import Page, pages
from .tree import ROOT, functions_of

CLI, EVENTS, SETTINGS = "docs/reference/cli.md", "docs/reference/events.md", "docs/reference/settings.md"
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
LONG_FLAG = re.compile(r"(?<!\S)--[a-z][a-z0-9-]+")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
PRIVATE = re.compile(
    r"(?<!\w)/(?:home|root|Users)/\w+|(?<!\w)/\w\S*/\.venv\b|(?<!\w)(?:issue|ticket) #\d+", re.IGNORECASE
)


def run() -> Report:
    return audit("0817 documentation alignment audit", CHECKS)


def dead_links() -> Iterator[str]:
    for page in pages().values():
        for link in page.links():
            if not link.startswith(("https://", "http://", "mailto:")) and not _leads_somewhere(page, link):
                yield f"{page.name}: {link}"


def _leads_somewhere(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.folder / path).resolve() if path else ROOT / page.name
    if not target.exists():
        return False
    found = pages().get(str(target.relative_to(ROOT)))
    return not anchor or found is None or anchor in found.anchors()


def untypable_commands() -> Iterator[str]:
    seen = 0
    for page in pages().values():
        for block in page.blocks:
            for command in block.commands() if block.language == "console" else ():
                seen += 1
                if problem := commands.objection(command.text):
                    yield f"{page.name}: {problem}"
    if seen < 20:
        yield f"only {seen} commands were found to look at"


def unknown_flags() -> Iterator[str]:
    known = commands.every_flag()
    for page in pages().values():
        for code in page.code():
            yield from (f"{page.name}: {flag}" for flag in LONG_FLAG.findall(code) if flag not in known)


def flags_out_of_step() -> Iterator[str]:
    page = pages()[CLI]
    for name, command in commands.leaves():
        rows = page.rows(name)
        said = {flag for row in rows for flag in FLAG.findall(row[0])}
        yield from _unequal(f"{CLI}, {name}", said, commands.flags_of(command))


def exit_codes_out_of_step() -> Iterator[str]:
    said = {int(number) for row in pages()[CLI].rows("Exit codes") for number in re.findall(r"\d+", row[0])}
    yield from _unequal(f"{CLI}, exit codes", said, {0, 1, 2, 3, 4, 5, 75, *EXIT_CODES.values()})


def events_out_of_step() -> Iterator[str]:
    page = pages()[EVENTS]
    headings = ("From a worker", "From the engine", "From outside", "From the run itself")
    said = {row[0].strip("`"): row[1] for heading in headings for row in page.rows(heading)}
    known = {kind.__name__: _fields(kind) for kind in typing.get_args(events.Event)}
    yield from _unequal(EVENTS, set(said), set(known))
    for name in set(said) & set(known):
        yield from _unequal(f"{EVENTS}, {name}", set(re.findall(r"\w+", said[name])), known[name])


def _fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def settings_out_of_step() -> Iterator[str]:
    page = pages()[SETTINGS]
    tables = {
        "Environment": set(wordings.variables()),
        "agentos.toml and config.toml": set(FILE_KEYS),
        "credentials.toml": set(reader._KNOWN),
    }
    for heading, known in tables.items():
        said = {row[0].strip("`") for row in page.rows(heading)}
        yield from _unequal(f"{SETTINGS}, {heading}", {name for name in said if "GEMINI" not in name}, known)


def unknown_variables() -> Iterator[str]:
    for page in pages().values():
        text = (ROOT / page.name).read_text("utf-8")
        found = set(wordings.VARIABLE.findall(text)) - wordings.variables()
        yield from (f"{page.name}: {name}" for name in sorted(found))


def unspoken_lines() -> Iterator[str]:
    for page in pages().values():
        yield from (f"{page.name}: {line}" for line in wordings.unspoken(page))


def missing_tests() -> Iterator[str]:
    for page in pages().values():
        text = (ROOT / page.name).read_text("utf-8")
        for file, name in sorted(set(TEST.findall(text))):
            if not (ROOT / file).is_file() or name not in functions_of(ROOT / file):
                yield f"{page.name}: {file}::{name}"


def private_places() -> Iterator[str]:
    """Also in pictures, which are drawn from what a run has said."""
    pictures = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "images").glob("*.svg"))]
    for name in [page.name for page in pages().values()] + pictures:
        text = (ROOT / name).read_text("utf-8")
        yield from (f"{name}: {found}" for found in PRIVATE.findall(text))


def unreachable_pages() -> Iterator[str]:
    """Pages that no link leads to."""
    reached = {"README.md", "CHANGELOG.md"}
    for page in pages().values():
        targets = ((page.folder / link.partition("#")[0]).resolve() for link in page.links())
        reached |= {str(target.relative_to(ROOT)) for target in targets if target.is_relative_to(ROOT)}
    yield from sorted(name for name in set(pages()) - reached if Path(name).suffix == ".md")


def _unequal(where: str, said: set[typing.Any], known: set[typing.Any]) -> Iterator[str]:
    yield from (f"{where}: {name} is not said" for name in sorted(known - said))
    yield from (f"{where}: {name} does not exist" for name in sorted(said - known))


CHECKS = (
    Check("every relative link leads somewhere", dead_links),
    Check("every page can be reached from another", unreachable_pages),
    Check("every command in a console block can be typed", untypable_commands),
    Check("every flag in running text exists", unknown_flags),
    Check("the flags in the reference are those of the command line", flags_out_of_step),
    Check("the exit codes in the reference are those of the program", exit_codes_out_of_step),
    Check("the events in the reference are those of the journal", events_out_of_step),
    Check("the settings in the reference are those that are read", settings_out_of_step),
    Check("every AGENTOS_ variable on a page exists", unknown_variables),
    Check("every line of output on a page is one that the program writes", unspoken_lines),
    Check("every test named on a page exists", missing_tests),
    Check("the file inventory is the tree", inventory.differences),
    Check("no page points to a place on somebody's machine", private_places),
)
