"""Writes the generated parts of the documentation: `python -m tests.audits.generate`."""

import re
import subprocess
import sys

import click

from agentos.cli.offline_server import command as offline_server
from tests.docs import pacing

from . import inventory
from .tree import ROOT

CLI = "docs/reference/cli.md"
REPORT = "docs/reports/parallel-execution/test-report.md"
POOL = "docs/explanation/key-pool.md"
PART = re.compile(r"(<!-- generated: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def flags_table(command: click.Command) -> str:
    """A command's flags as click knows them."""
    rows = [_row(param) for param in command.params if isinstance(param, click.Option)]
    return "\n".join(["| flag | meaning |", "| --- | --- |", *rows, ""])


def cli_page() -> str:
    """The reference of the command line, with the table of the offline server as it is now."""
    text = (ROOT / CLI).read_text("utf-8")
    return PART.sub(lambda found: found[1] + flags_table(offline_server) + found[2], text)


def report_page() -> str:
    """The test report, with what the audits say now; they are asked in a process that has cached nothing."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.audits"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    text = (ROOT / REPORT).read_text("utf-8")
    return PART.sub(lambda found: f"{found[1]}```text\n{said}```\n{found[2]}", text)


def pool_page() -> str:
    """The page of the pool, with the figures that the simulation gives now."""
    text = (ROOT / POOL).read_text("utf-8")
    return PART.sub(lambda found: f"{found[1]}```text\n{pacing.table()}\n```\n{found[2]}", text)


def _row(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(offline_server))}"
    names = ", ".join(f"`{name}{value}`" for name in option.opts)
    default = option.default if option.show_default else None
    said = f"{option.help or ''}{'' if default is None else f' Default: {default}.'}"
    names, said = (text.replace("|", "\\|") for text in (names, said))
    return f"| {names} | {said} |"


def main() -> int:
    (ROOT / CLI).write_text(cli_page(), "utf-8")
    (ROOT / POOL).write_text(pool_page(), "utf-8")
    (ROOT / inventory.PAGE).write_text(inventory.text(), "utf-8")
    (ROOT / REPORT).write_text(report_page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
