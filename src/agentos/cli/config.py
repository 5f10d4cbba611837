"""`agentos config`: shows the settings and where they come from."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentos.cli.json_output import json_option, print_json
from agentos.cli.param_types import Dollars, Duration, Workers
from agentos.core.constants import AUTO_PARALLEL

if TYPE_CHECKING:
    from agentos.config.origins import SettingOrigin

DURATIONS = ("timeout", "max_wait")


def _show(origin: bool, as_json: bool, **flags: Any) -> int:
    from agentos.config.origins import origins
    from agentos.config.project import with_paths_from_here
    from agentos.config.settings import Flags, environment
    from agentos.core.text.line_assembler import one_line

    def shown(source: str) -> str:
        return with_paths_from_here(one_line(source), environment())

    found = origins(Flags(**flags))
    rows = [_capped(row, found) for row in found]
    if as_json:
        settings = {row.name: {"value": _value_json(row.value), "source": row.source} for row in rows}
        print_json({"settings": settings})
        return 0
    texts = [
        one_line(_duration_text(row.value) if row.name in DURATIONS else _value_text(row.value))
        for row in rows
    ]
    names, values = max(len(row.name) for row in rows), min(48, max(len(text) for text in texts))
    for row, text in zip(rows, texts, strict=True):
        click.echo(f"{row.name:<{names}}  {text:<{values}}  {shown(row.source) if origin else ''}".rstrip())
    return 0


def _capped(row: "SettingOrigin", rows: "list[SettingOrigin]") -> "SettingOrigin":
    """The number of workers that a run would have, given enough memory."""
    from agentos.outputs.format import over_maximum

    maximum = next(other.value for other in rows if other.name == "max_parallel")
    if row.name != "parallel" or not isinstance(row.value, int) or not isinstance(maximum, int):
        return row
    if row.value == AUTO_PARALLEL:
        return replace(row, value="auto")
    if row.value > maximum:
        click.echo(f"Warning: {over_maximum(row.value, maximum)}", err=True)
    return replace(row, value=min(row.value, maximum))


def _duration_text(seconds: Any) -> str:
    """In seconds, as in the files, and in hours or minutes where that is a whole number."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds:g} ({seconds / length:g}{unit})"
    return f"{seconds:g}"


def _value_json(value: object) -> object:
    """A setting's value: lists as lists, paths as text, a model with its price as one object."""
    from agentos.core.quota.budget import Price

    match value:
        case None | bool() | int() | float() | str():
            return value
        case (str() as model, Price() as price):
            return {"model": model, **asdict(price)}
        case tuple():
            return [_value_json(part) for part in value]
        case _:
            return str(value)


def _value_text(value: object) -> str:
    from agentos.core.quota.budget import Price

    match value:
        case None | "":
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case (str() as model, Price() as price):
            _, _, read, write, _ = price.rates
            cache = f", cache {read:g} read, {write:g} written" if (read, write) != (price.input,) * 2 else ""
            return f"{model}: {price.input:g} in, {price.output:g} out{cache}"
        case tuple():
            return ", ".join(_value_text(part) for part in value) or "-"
        case _:
            return str(value) or "-"


def _flag(name: str, kind: Any, help: str) -> click.Option:
    return click.Option([name], type=kind, help=help)


@click.pass_context
def _default(ctx: click.Context) -> int:
    return _show(origin=False, as_json=False) if ctx.invoked_subcommand is None else 0


command = click.Group(
    "config",
    help="Show the settings and where they come from; without a subcommand, as show does.",
    invoke_without_command=True,
    callback=_default,
    commands={
        "show": click.Command(
            "show",
            help="Show every setting as a run in this project would use it; keys are never shown. "
            "Add the flags of a run to see their effect.",
            params=[
                json_option(),
                click.Option(
                    ["--origin"],
                    is_flag=True,
                    help="Show where each value comes from: flag, variable, or file and line.",
                ),
                _flag(
                    "--repo",
                    click.Path(path_type=Path, file_okay=False),
                    "Project folder (default: the current folder or a parent).",
                ),
                _flag("--parallel", Workers(), "As for agentos run."),
                _flag("--max-iterations", click.IntRange(min=1), "As for agentos run."),
                _flag("--timeout", Duration(), "As for agentos run."),
                _flag("--retries", click.IntRange(min=0), "As for agentos run."),
                _flag("--max-wait", Duration(), "As for agentos run."),
                _flag("--budget", Dollars(), "As for agentos run."),
            ],
            callback=_show,
            epilog="\b\nExamples:\n  agentos config show --origin\n  agentos config show --origin --parallel 5",
        )
    },
)
