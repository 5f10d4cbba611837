"""`--json` of the commands that print a list or a state: one JSON object on one line of stdout, in UTF-8.

The reference of the command line describes the shapes: fields may be added, but not renamed or removed.
"""

import json
from collections.abc import Mapping

import click


def print_json(*values: Mapping[str, object]) -> None:
    """Print each on a line of its own; file names that are not UTF-8 with a `?` for each wrong byte."""
    text = "\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    click.echo(text.encode("utf-8", "replace"))


def json_option() -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")


def check_json_position(ctx: click.Context, as_json: bool) -> None:
    """Refuse `agentos keys --json list`, which would print text: the flag belongs to the subcommand."""
    if as_json and ctx.invoked_subcommand:
        command = f"{ctx.command_path} {ctx.invoked_subcommand}"
        raise click.UsageError(f"--json belongs after {ctx.invoked_subcommand}: {command} --json")
