"""The manual page agentos(1), generated from the commands, options and help texts that `--help` shows."""

import re
from collections.abc import Iterator

import click

from agentos import __version__
from agentos.cli.group import COMMANDS, LazyGroup
from agentos.cli.run import workflow_command

ALIASES = ("lld-workflow", "issue-workflow")
"""Programs for which this page is installed, too."""
_INTRO = (
    "agentos turns a backlog of issues into reviewed documents. It runs many LLM workflows side by side, each in a process "
    "of its own, over one pool of rate-limited API keys. After Ctrl-C, a crash or a power failure the same command resumes "
    "from the last finished step.",
    "lld-workflow and issue-workflow are short for agentos run lld and agentos run issue.",
)
_EXIT_CODES = {
    "0": "every item reached a verdict or waits for a person; also if nothing was pending",
    "1": "at least one item failed",
    "2": "usage error",
    "3": "not ready: invalid settings, no project, unusable home",
    "4": "every key is missing, invalid or disabled",
    "5": "the given names or labels match nothing",
    "75": "stopped for quota or budget; the same command resumes",
    "130, 143, 129": "interrupted by Ctrl-C, SIGTERM, SIGHUP; the same command resumes",
}
_ENVIRONMENT = {
    "GEMINI_API_KEY_1, ANTHROPIC_API_KEY_1, OPENAI_API_KEY_1": "API keys; further ones are numbered 2, 3 and so on",
    "AGENTOS_HOME": "the folder for checkpoints, logs and credentials; ~/.agentos if not set",
    "AGENTOS_KEY_CONCURRENCY": "concurrent calls per key; 1 if not set",
    "NO_COLOR, FORCE_COLOR": "if set, never or always use colours",
}
_FILES = {
    "agentos.toml": "settings of a project",
    "~/.agentos/config.toml": "your own settings",
    "~/.agentos/credentials.toml": "stored keys; see agentos keys",
    "~/.agentos/logs/parallel/": "one folder per run: logs, journal, summary",
}


def man_page() -> str:
    """The page as roff, the same on every machine."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f'.TH AGENTOS 1 "" "agentos {__version__}" "User Commands"'
    yield from (
        ".SH NAME",
        r"agentos, lld\-workflow, issue\-workflow \- turn a backlog into reviewed documents",
    )
    yield from (".SH SYNOPSIS", r".B agentos", r".I COMMAND", "[OPTION]... [ARGUMENT]...", ".br")
    for name in ALIASES:
        yield from (f".B {_escaped(name)}", "[OPTION]... [ITEM]...", ".br")
    yield ".SH DESCRIPTION"
    for paragraph in _INTRO:
        yield from (_escaped(paragraph), ".PP")
    yield ".SH COMMANDS"
    yield from _command("lld-workflow", workflow_command("lld"))
    group = LazyGroup()
    context = click.Context(group, info_name="agentos")
    for name in COMMANDS:
        if command := group.get_command(context, name):
            yield from _command(f"agentos {name}", command)
    for title, table in (("EXIT STATUS", _EXIT_CODES), ("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}"
        for term, meaning in table.items():
            yield from (".TP", f".B {_escaped(term)}", _escaped(meaning))
    yield from (".SH SEE ALSO", _escaped("agentos help COMMAND, or COMMAND --help"))


def _command(name: str, command: click.Command) -> Iterator[str]:
    """A subsection: usage, description, arguments and options, the subsections of its subcommands, examples."""
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f'.SS "{_escaped(f"{name} {usage}")}"', *_paragraphs(command.help or ""))
    for param in command.params:
        if (record := param.get_help_record(context)) and record[1]:
            yield from (".TP", f".B {_escaped(record[0])}", _escaped(_unwrapped(record[1])))
    if isinstance(command, click.Group):
        for inner, found in command.commands.items():
            yield from _command(f"{name} {inner}", found)
    yield from (".PP", *_paragraphs(command.epilog or ""))


def _paragraphs(text: str) -> Iterator[str]:
    r"""Paragraphs are wrapped by roff; those that begin with \b keep their line breaks, as in click."""
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if paragraph.startswith("\b\n"):
            yield from (".nf", *(_escaped(line) for line in paragraph.splitlines()[1:]), ".fi", ".PP")
        elif paragraph.strip():
            yield from (_escaped(_unwrapped(paragraph)), ".PP")


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    """Escape text so that roff prints it literally: no dot or quote starts a request, and hyphens stay ASCII, so that an
    option can be copied from the page."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("~", r"\(ti")
    return rf"\&{text}" if text.startswith((".", "'")) else text
