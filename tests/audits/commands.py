"""Checks that a command in the documentation exists and accepts its arguments."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator

import click

from agentos.cli.group import COMMANDS, LazyGroup
from agentos.cli.run import workflow_command

from .tree import ROOT

SHELL_COMMANDS = re.compile(
    r"cat|cd|chmod|cp|curl|echo|export|git|grep|head|kill|ls|mkdir|mktemp|pass|pip|pipx|printf|python3|rm|sleep|tail|test"
    r"|time|unset|uv|wc|\.venv/bin/(pip|pre-commit|python)"
)
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
SEPARATORS = {"&&", "||", "|", ";", "&"}


def problem_with(line: str) -> str | None:
    """What is wrong with a command line, or None."""
    for words in _simple_commands(line):
        if problem := _problem(words):
            return f"{line}: {problem}"
    return None


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command of agentos by its full name; hidden aliases are not documented."""
    group = LazyGroup()
    context = click.Context(group, info_name="agentos")
    yield "agentos", group
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        yield f"agentos {name}", command
        if isinstance(command, click.Group):
            visible = ((inner, found) for inner, found in command.commands.items() if not found.hidden)
            yield from ((f"agentos {name} {inner}", found) for inner, found in visible)


def flags_of(command: click.Command) -> set[str]:
    return {name for param in command.params if isinstance(param, click.Option) for name in param.opts}


def every_flag() -> set[str]:
    return {flag for _, command in leaves() for flag in flags_of(command)} | {"--help", "-h"}


def _simple_commands(line: str) -> list[list[str]]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if word in SEPARATORS:
            found.append([])
        else:
            found[-1].append(word)
    return [_without_redirection(words) for words in found if words]


def _without_redirection(words: list[str]) -> list[str]:
    cut = next((at for at, word in enumerate(words) if set(word) <= {">", "<"}), len(words))
    return words[: cut - 1] if cut < len(words) and words[cut - 1].isdigit() else words[:cut]


def _problem(words: list[str]) -> str | None:
    while words and ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    match words:
        case []:
            return None
        case ["make", *targets]:
            return _no_target(targets)
        case ["agentos", *rest]:
            return _parse(LazyGroup(), "agentos", rest)
        case ["lld-workflow" | "issue-workflow" as name, *rest]:
            return _parse(workflow_command(name.partition("-")[0]), name, rest)
        case [name, *_]:
            return None if SHELL_COMMANDS.fullmatch(name) else f"{name} is not a known command"
    return None


def _no_target(targets: list[str]) -> str | None:
    text = (ROOT / "Makefile").read_text("utf-8")
    missing = [
        name for name in targets if "=" not in name and not re.search(rf"^{name}:", text, re.MULTILINE)
    ]
    return f"the Makefile has no target {missing[0]}" if missing else None


def _parse(command: click.Command, name: str, words: list[str]) -> str | None:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            context = command.make_context(name, list(words))
            if isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
                inner_name, inner, inner_words = command.resolve_command(context, rest)
                assert inner is not None
                return _parse(inner, str(inner_name), inner_words)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None
