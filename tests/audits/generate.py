"""Rewrites the generated parts of the documentation and the manual pages: `python -m tests.audits.generate`."""

import re
import sys

import click

from agentos.cli.man_page import ALIASES, man_page
from agentos.cli.offline_server import command as offline_server
from tests.docs import pacing

from .tree import ROOT

CLI = "docs/reference/cli.md"
POOL = "docs/explanation/key-pool.md"
MAN = "data/share/man/man1"
PART = re.compile(r"(<!-- generated: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def flags_table(command: click.Command) -> str:
    """The options of a command as a Markdown table."""
    rows = [_row(param) for param in command.params if isinstance(param, click.Option)]
    return "\n".join(["| flag | meaning |", "| --- | --- |", *rows, ""])


def cli_page() -> str:
    """The reference of the command line, with the current options of the offline server."""
    text = (ROOT / CLI).read_text("utf-8")
    return PART.sub(lambda found: found[1] + flags_table(offline_server) + found[2], text)


def pool_page() -> str:
    """The page about the key pool, with the current results of the simulation."""
    text = (ROOT / POOL).read_text("utf-8")
    return PART.sub(lambda found: f"{found[1]}```text\n{pacing.table()}\n```\n{found[2]}", text)


def man_pages() -> dict[str, str]:
    """The manual pages by file name; the short programs are described on the page of agentos."""
    return {"agentos.1": man_page()} | {f"{name}.1": ".so man1/agentos.1\n" for name in ALIASES}


def _row(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(offline_server))}"
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    default = option.default if option.show_default else None
    meaning = f"{option.help or ''}{'' if default is None else f' Default: {default}.'}"
    names, meaning = (text.replace("|", "\\|") for text in (names, meaning))
    return f"| {names} | {meaning} |"


def main() -> int:
    (ROOT / CLI).write_text(cli_page(), "utf-8")
    (ROOT / POOL).write_text(pool_page(), "utf-8")
    for name, text in man_pages().items():
        (ROOT / MAN / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
