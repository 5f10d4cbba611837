"""The documentation audit: links, commands, flags, settings, events, tests and modules on the pages exist."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path

from agentos.config.file import FILE_KEYS
from agentos.core.protocol import events
from agentos.core.protocol.codec import WIRE_NAMES
from agentos.core.scheduling.control import EXIT_CODES
from agentos.exec.agents import AGENTS
from agentos.storage.credentials import file_parser

from . import commands, names, output_lines
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
    return audit("Documentation audit", CHECKS)


def dead_links() -> Iterator[str]:
    for page in pages().values():
        for link in page.links():
            if not link.startswith(("https://", "http://", "mailto:")) and not _target_exists(page, link):
                yield f"{page.name}: {link}"


def _target_exists(page: Page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.folder / path).resolve() if path else ROOT / page.name
    if not target.exists():
        return False
    found = pages().get(str(target.relative_to(ROOT)))
    return not anchor or found is None or anchor in found.anchors()


def invalid_commands() -> Iterator[str]:
    count = 0
    for page in pages().values():
        for block in page.blocks:
            for command in block.commands() if block.language == "console" else ():
                count += 1
                if problem := commands.problem_with(command.text):
                    yield f"{page.name}: {problem}"
    if count < 20:
        yield f"only {count} commands were found"


def unknown_flags() -> Iterator[str]:
    known = commands.every_flag() | agent_flags()
    for page in pages().values():
        for code in page.code():
            yield from (f"{page.name}: {flag}" for flag in LONG_FLAG.findall(code) if flag not in known)


def agent_flags() -> set[str]:
    """The flags with which we start coding agents."""
    return {word for client in AGENTS.values() for word in client.command((), "") if word.startswith("--")}


def undocumented_flags() -> Iterator[str]:
    page = pages()[CLI]
    for name, command in commands.leaves():
        rows = page.rows(name)
        documented = {flag for row in rows for flag in FLAG.findall(row[0])}
        yield from _differences(f"{CLI}, {name}", documented, commands.flags_of(command))


def undocumented_exit_codes() -> Iterator[str]:
    documented = {
        int(number) for row in pages()[CLI].rows("Exit codes") for number in re.findall(r"\d+", row[0])
    }
    yield from _differences(f"{CLI}, exit codes", documented, {0, 1, 2, 3, 4, 5, 75, *EXIT_CODES.values()})


def undocumented_events() -> Iterator[str]:
    page = pages()[EVENTS]
    headings = ("From a worker", "From the engine", "From outside", "From the run itself")
    documented = {row[0].strip("`"): row[1] for heading in headings for row in page.rows(heading)}
    known = {WIRE_NAMES[kind]: _fields(kind) for kind in typing.get_args(events.Event)}
    yield from _differences(EVENTS, set(documented), set(known))
    for name in set(documented) & set(known):
        yield from _differences(f"{EVENTS}, {name}", set(re.findall(r"\w+", documented[name])), known[name])


def _fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def undocumented_settings() -> Iterator[str]:
    page = pages()[SETTINGS]
    tables = {
        "Environment": set(output_lines.variables()),
        "agentos.toml and config.toml": set(FILE_KEYS),
        "credentials.toml": set(file_parser._FIELDS),
    }
    for heading, known in tables.items():
        documented = {row[0].strip("`") for row in page.rows(heading)}
        yield from _differences(
            f"{SETTINGS}, {heading}", {name for name in documented if "GEMINI" not in name}, known
        )


def unknown_variables() -> Iterator[str]:
    for page in pages().values():
        text = (ROOT / page.name).read_text("utf-8")
        found = set(output_lines.VARIABLE.findall(text)) - output_lines.variables()
        yield from (f"{page.name}: {name}" for name in sorted(found))


def unknown_output() -> Iterator[str]:
    for page in pages().values():
        yield from (f"{page.name}: {line}" for line in output_lines.unknown_lines(page))


def missing_tests() -> Iterator[str]:
    for page in pages().values():
        text = (ROOT / page.name).read_text("utf-8")
        for file, name in sorted(set(TEST.findall(text))):
            if not (ROOT / file).is_file() or name not in functions_of(ROOT / file):
                yield f"{page.name}: {file}::{name}"


def private_paths() -> Iterator[str]:
    """In pictures as well: they are drawn from the output of a run."""
    pictures = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "images").glob("*.svg"))]
    for name in [page.name for page in pages().values()] + pictures:
        text = (ROOT / name).read_text("utf-8")
        yield from (f"{name}: {found}" for found in PRIVATE.findall(text))


def orphaned_pages() -> Iterator[str]:
    """Pages that no other page links to."""
    reached = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
    for page in pages().values():
        targets = ((page.folder / link.partition("#")[0]).resolve() for link in page.links())
        reached |= {str(target.relative_to(ROOT)) for target in targets if target.is_relative_to(ROOT)}
    yield from sorted(name for name in set(pages()) - reached if Path(name).suffix == ".md")


def _differences(where: str, documented: set[typing.Any], known: set[typing.Any]) -> Iterator[str]:
    yield from (f"{where}: {name} is not documented" for name in sorted(known - documented))
    yield from (f"{where}: {name} does not exist" for name in sorted(documented - known))


CHECKS = (
    Check("every relative link has a target", dead_links),
    Check("every page is linked from another page", orphaned_pages),
    Check("every command in a console block is valid", invalid_commands),
    Check("every flag in the text exists", unknown_flags),
    Check("the reference lists the flags of every command", undocumented_flags),
    Check("the reference lists the exit codes of the program", undocumented_exit_codes),
    Check("the reference lists the events of the journal", undocumented_events),
    Check("the reference lists the settings that are read", undocumented_settings),
    Check("every AGENTOS_ variable on a page exists", unknown_variables),
    Check("every line of output on a page is one that the program writes", unknown_output),
    Check("every test named on a page exists", missing_tests),
    Check("every module named on a page exists", names.missing_modules),
    Check("no class name is used twice", names.repeated_class_names),
    Check("no module name is used for two jobs", names.repeated_module_names),
    Check("no page contains a path of somebody's machine", private_paths),
)
