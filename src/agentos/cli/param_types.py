"""What words on the command line mean."""

import re

import click

from agentos.core.constants import DEFAULT_PARALLEL, MAX_PARALLEL

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_SIZES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


class Duration(click.ParamType[float]):
    """`90`, `90s`, `30m`, `1h`, `30d`."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h|d)?", str(value).strip())
        if not found or float(found[1]) <= 0:
            self.fail(f"{value!r} is not a time; expected such as 90s, 30m or 1h", param, ctx)
        return float(found[1]) * _UNITS[found[2] or ""]


class Age(Duration):
    """`12h`, `30d`: by a number alone, a person may mean seconds or days."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if str(value).strip().isdigit():
            self.fail(f"{value!r} of what? Expected such as 12h or 30d", param, ctx)
        return super().convert(value, param, ctx)


class ByteSize(click.ParamType[int]):
    """`200MB`, `1GB`, `1GiB`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)", str(value).strip())
        units = {unit.casefold(): factor for unit, factor in _SIZES.items()}
        if not found or found[2].casefold() not in units:
            self.fail(f"{value!r} is not a size; expected such as 200MB, 1GB or 1GiB", param, ctx)
        return int(float(found[1]) * units[found[2].casefold()])


class ImpliedInt(int):
    """A number that nobody typed: what an option without its value stands for."""


class Workers(click.ParamType[int]):
    """How many workers; over the maximum is capped with a warning."""

    name = "n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, ImpliedInt):
            return value
        text = str(value)
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
            # An option without its number stands for the usual; an argument has no such form.
            unsaid = "" if isinstance(param, click.Argument) else f", or nothing for {DEFAULT_PARALLEL}"
            self.fail(
                f"{text!r} is not a number of workers; expected 1 to {MAX_PARALLEL}{unsaid}", param, ctx
            )
        return int(text)


def capped(workers: int) -> int:
    from agentos.outputs.format import over_maximum

    if workers > MAX_PARALLEL:
        click.echo(f"Warning: {over_maximum(workers)}", err=True)
    return min(workers, MAX_PARALLEL)
