"""`agentos gateway`: the pool of keys, for agents that know nothing of agentos."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.held_back import warn_held_back
from agentos.cli.param_types import Duration

if TYPE_CHECKING:
    from agentos.gateway.server import Ready

EPILOG = """\b
Examples:
  agentos gateway
  agentos gateway --port 8484 --max-wait 10m
  agentos gateway --item writer --item critic --format json
  agentos gateway --budget 5 > gateway.env &
  until [ -s gateway.env ]; do sleep 0.1; done; . ./gateway.env; my-agent
  agentos gateway --offline

\b
It speaks, below http://127.0.0.1:PORT:
  /gemini       Gemini's API, as at generativelanguage.googleapis.com
  /anthropic    Anthropic's API, as at api.anthropic.com
  /openai/v1    OpenAI's API, as at api.openai.com/v1
Every path and method of it is forwarded, streams piece by piece. A call that is
refused before its first byte goes to another key; the agent sees nothing of it.
When no key comes back in time, it is told so with 429 and Retry-After.
"""


def _run(
    port: int,
    item: tuple[str, ...],
    format: str,
    max_wait: float,
    budget: float | None,
    repo: Path | None,
    offline: bool,
    die_with_parent: bool,
) -> int:
    """Let any agent share the keys: forward Gemini's, Anthropic's and OpenAI's calls, each with a key leased from the pool.

    Prints the variables that bring an agent here, with a token in the place of a key; the token is good as
    long as the gateway runs. What it does, it says on stderr; Ctrl-C ends it, with tokens and cost per item.
    """
    from agentos.config.settings import Flags, read_settings
    from agentos.gateway.server import GatewayOptions, run_gateway

    settings = read_settings(Flags(repo=repo, budget=budget))
    warn_held_back(settings, err=True)
    items = item or ("agent",)
    service = GatewayOptions(
        settings, max_wait, port, offline, ends_with_stdin=die_with_parent, emit_events=format == "events"
    )
    try:
        return run_gateway(service, lambda ready: click.echo(_words(ready, items, format), nl=False))
    except OSError as error:
        raise click.UsageError(f"cannot listen on port {port}: {error.strerror or error}") from error


def _words(ready: "Ready", items: tuple[str, ...], format: str) -> str:
    from agentos.gateway.tokens import client_variables, shell_exports

    if format == "events":
        return json.dumps({"url": ready.url, "providers": ready.providers}) + "\n"
    found = {item: client_variables(ready.url, ready.providers, ready.signer.token(item)) for item in items}
    if format == "json":
        return json.dumps({"url": ready.url, "items": found}) + "\n"
    if len(items) == 1:
        return shell_exports(found[items[0]])
    return "".join(f"# {item}\n{shell_exports(one)}" for item, one in found.items())


command = click.Command(
    "gateway",
    callback=_run,
    help=_run.__doc__,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--port"], type=click.IntRange(0, 65535), default=0, help="Where to listen; 0 takes a free one."
        ),
        click.Option(
            ["--item"],
            multiple=True,
            metavar="NAME",
            help="Whom to make a token for, and count calls by; repeatable (agent).",
        ),
        click.Option(
            ["--format"],
            type=click.Choice(["env", "json", "events"]),
            default="env",
            help="How to print the variables: lines for a shell, JSON, or JSON followed by an event a line (env).",
        ),
        click.Option(
            ["--max-wait"],
            type=Duration(),
            default="5m",
            help="How long a call may wait for a key before it is told to come back later (5m).",
        ),
        click.Option(
            ["--budget"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="USD",
            help="Refuse calls beyond this cost.",
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path),
            help="The project whose agentos.toml has prices and a budget (here).",
        ),
        click.Option(
            ["--offline"], is_flag=True, help="Forward to the built-in rule engine; no key, no network."
        ),
        click.Option(
            ["--die-with-parent"],
            is_flag=True,
            help="End when stdin ends; its first line is the seed of the tokens.",
        ),
    ],
)
