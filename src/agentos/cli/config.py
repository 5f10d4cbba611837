"""`agentos config`: the settings, and where they come from."""

from pathlib import Path
from typing import Any

import click

from agentos.cli.param_types import Duration, Workers, capped

TIMES = ("timeout", "max_wait")


def _show(origin: bool, **flags: Any) -> int:
    from agentos.config.origins import origins
    from agentos.config.settings import Flags
    from agentos.core.text.line_assembler import one_line

    if flags["parallel"]:
        flags["parallel"] = capped(flags["parallel"])
    rows = origins(Flags(**flags))
    texts = [one_line(_time(row.value) if row.name in TIMES else _text(row.value)) for row in rows]
    names, values = max(len(row.name) for row in rows), min(48, max(len(text) for text in texts))
    for row, text in zip(rows, texts, strict=True):
        click.echo(
            f"{row.name:<{names}}  {text:<{values}}  {one_line(row.source) if origin else ''}".rstrip()
        )
    return 0


def _time(seconds: Any) -> str:
    """In seconds, as files say it; and as a flag would, where that is shorter."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds:g} ({seconds / length:g}{unit})"
    return f"{seconds:g}"


def _text(value: object) -> str:
    """In few words; a secret never shows itself."""
    from agentos.core.quota.budget import Price

    match value:
        case None | "":
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case (str() as model, Price() as price):
            return f"{model}: {price.input:g} in, {price.output:g} out"
        case tuple():
            return ", ".join(_text(part) for part in value) or "-"
        case _:
            return str(value)


def _flag(name: str, kind: Any, help: str) -> click.Option:
    return click.Option([name], type=kind, help=help)


command = click.Group(
    "config",
    help="The settings, and where they come from.",
    commands={
        "show": click.Command(
            "show",
            help="Every setting with its value, as a run in this project would have it; keys are never shown. "
            "The flags of a run may be given, to see what they change.",
            params=[
                click.Option(["--origin"], is_flag=True, help="Who gave it: flag, variable, file and line."),
                _flag(
                    "--repo", click.Path(path_type=Path, file_okay=False), "The project's folder (this one)."
                ),
                _flag("--parallel", Workers(), "As for a run."),
                _flag("--max-iterations", click.IntRange(min=1), "As for a run."),
                _flag("--timeout", Duration(), "As for a run."),
                _flag("--retries", click.IntRange(min=0), "As for a run."),
                _flag("--max-wait", Duration(), "As for a run."),
                _flag("--budget", click.FloatRange(min=0, min_open=True), "As for a run."),
            ],
            callback=_show,
            epilog="\b\nExamples:\n  agentos config show --origin\n  agentos config show --origin --parallel 5",
        )
    },
)
