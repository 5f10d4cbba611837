"""Click parameter types: durations, sizes, addresses, worker counts and environment variables."""

import re

import click

from agentos.core.constants import AUTO_PARALLEL, DEFAULT_PARALLEL, MAX_PARALLEL

_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


AGENT_NAMES = ("claude", "codex", "gemini", "opencode", "aider")
"""As in agentos.exec.agents, which is imported only when it is needed."""


class Duration(click.ParamType[float]):
    """`90`, `90s`, `30m`, `1h`, `30d`, as seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|min|h|d)?", str(value).strip())
        if not found or float(found[1]) <= 0:
            self.fail(f"invalid time {value!r}: expected a value such as 90s, 30m or 1h", param, ctx)
        return float(found[1]) * _SECONDS[found[2] or ""]


class Age(Duration):
    """`12h`, `30d`. The unit is required: a bare number could mean seconds or days."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if re.fullmatch(r"[\d.]+", str(value).strip()):
            self.fail(f"{value!r} has no unit: expected a value such as 12h or 30d", param, ctx)
        return super().convert(value, param, ctx)


class ByteSize(click.ParamType[int]):
    """`200MB`, `1GB`, `1GiB`, as bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)", str(value).strip())
        units = {unit.casefold(): factor for unit, factor in _BYTES.items()}
        if not found or found[2].casefold() not in units:
            self.fail(f"invalid size {value!r}: expected a value such as 200MB, 1GB or 1GiB", param, ctx)
        return int(float(found[1]) * units[found[2].casefold()])


class Dollars(click.ParamType[float]):
    """`5`, `0.50`: an amount of US dollars above 0."""

    name = "usd"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not re.fullmatch(r"\d{0,12}\.?\d{1,12}|\d{1,12}\.", str(value)) or not float(str(value)):
            self.fail(f"invalid amount {value!r}: expected US dollars above 0, such as 5 or 0.50", param, ctx)
        return float(str(value))


class BaseUrl(click.ParamType[str]):
    """The address of a model server: `https://example.org/v1`."""

    name = "url"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from urllib.parse import urlsplit

        text = str(value)
        try:
            parts = urlsplit(text)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or not text.isprintable() or " " in text:
            self.fail(f"invalid address {text!r}: expected one such as https://example.org/v1", param, ctx)
        return text


class HostPort(click.ParamType[tuple[str, int]]):
    """`10.0.0.5:8484` or `[::1]:8484`, as host and port."""

    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, _, port = str(value).rpartition(":")
        name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not name or (":" in name and name == host) or not re.fullmatch(r"[\w.:-]+", name):
            self.fail(f"invalid address {value!r}: expected HOST:PORT such as 10.0.0.5:8484", param, ctx)
        if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
            self.fail(f"invalid port in {value!r}: expected 0 to 65535", param, ctx)
        return name, int(port)


class ImpliedInt(int):
    """The number implied by an option without a value, as opposed to one that was typed."""


class Workers(click.ParamType[int]):
    """A number of workers, or `auto`; `limit_workers` lowers a number above the maximum, with a warning."""

    name = "n|auto"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, ImpliedInt):
            return value
        text = str(value)
        if text == "auto":
            return AUTO_PARALLEL
        if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
            # An option's number may be left out, an argument's may not.
            optional = (
                "" if isinstance(param, click.Argument) else f" (or leave it out for {DEFAULT_PARALLEL})"
            )
            self.fail(
                f"invalid worker count {text}: must be 1 to {MAX_PARALLEL}, or auto{optional}", param, ctx
            )
        return int(text)


def passed_variables(definitions: tuple[str, ...]) -> dict[str, str]:
    """The values of `--env NAME` and `--env NAME=VALUE`."""
    from agentos.config.settings import environment

    found = {}
    for definition in definitions:
        name, equals, value = definition.partition("=")
        if not equals and name not in environment():
            raise click.UsageError(
                f"--env {name}: the variable is not set; give a value with --env {name}=VALUE"
            )
        found[name] = value if equals else environment()[name]
    return found


def traces_option() -> click.Option:
    return click.Option(
        ["--traces"],
        is_flag=True,
        help="Export OpenTelemetry traces to OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318). Needs the extra traces.",
    )


def require_traces(wanted: bool) -> bool:
    """Whether traces were requested. Raises PreflightError if the extra is not installed."""
    import importlib.util

    from agentos.core.errors import PreflightError

    def is_there(module: str) -> bool:
        parent = module.rpartition(".")[0]
        return (not parent or is_there(parent)) and importlib.util.find_spec(module) is not None

    if wanted and not is_there("opentelemetry.exporter.otlp.proto.http"):
        raise PreflightError("--traces needs OpenTelemetry: type pip install 'agentos-runner[traces]'")
    return wanted


def log_option() -> click.Option:
    """`--log`, for the commands that run as services."""
    return click.Option(
        ["--log"],
        type=click.Choice(["text", "json"]),
        default="text",
        help="Log as lines for people, or as one JSON object per line with time, level and event (text).",
    )
