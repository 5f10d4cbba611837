"""`--json` of the commands that print a list or a state: one JSON object on one line of stdout.

The reference of the command line describes the shapes: fields may be added, but not renamed or removed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict

import click


def print_json(value: Mapping[str, object]) -> None:
    click.echo(json.dumps(value))


def json_option() -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object.")


def check_json_position(ctx: click.Context, as_json: bool) -> None:
    """Refuse `agentos keys --json list`, which would print text: the flag belongs to the subcommand."""
    if as_json and ctx.invoked_subcommand:
        command = f"{ctx.command_path} {ctx.invoked_subcommand}"
        raise click.UsageError(f"--json belongs after {ctx.invoked_subcommand}: {command} --json")


def setting_json(value: object) -> object:
    """A setting's value: lists as lists, paths as text, a model with its price as one object."""
    from agentos.core.quota.budget import Price

    match value:
        case None | bool() | int() | float() | str():
            return value
        case (str() as model, Price() as price):
            return {"model": model, **asdict(price)}
        case tuple():
            return [setting_json(part) for part in value]
        case _:
            return str(value)
