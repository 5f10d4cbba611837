"""`agentos gateway`: shares the key pool with agents that know nothing about agentos."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentos.cli.gateway_tokens import TOKEN_COMMANDS
from agentos.cli.param_types import (
    AGENT_NAMES,
    Dollars,
    Duration,
    HostPort,
    log_option,
    require_traces,
    traces_option,
)
from agentos.cli.trust import warn_held_back

if TYPE_CHECKING:
    from agentos.gateway.server import Ready, SharedAddress

MAX_WAIT = 300.0  # seconds
SHARED_MAX_WAIT = 60.0  # seconds; connections between machines that are idle for longer are often cut

EPILOG = """\b
Examples:
  agentos gateway
  agentos gateway --port 8484 --max-wait 10m
  agentos gateway --item writer --item critic --format json
  agentos gateway --budget 5 > gateway.env &
  while kill -0 $! && ! [ -s gateway.env ]; do sleep 0.1; done; . ./gateway.env; my-agent
  agentos gateway --agent codex > gateway.env &
  agentos gateway --offline
  agentos gateway --listen 10.0.0.5:8484 --tls-cert cert.pem --tls-key key.pem

\b
Endpoints below http://127.0.0.1:PORT:
  /gemini       the Gemini API, as at generativelanguage.googleapis.com
  /anthropic    the Anthropic API, as at api.anthropic.com
  /openai/v1    the OpenAI API, as at api.openai.com/v1
Every path and method is forwarded; responses are streamed. A call that is refused
before its first byte is retried with another key, unseen by the agent. If no key
becomes free in time, the agent gets a 429 with Retry-After.
"""


@click.pass_context
def _run(
    ctx: click.Context,
    port: int | None,
    listen: tuple[str, int] | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    metrics: tuple[str, int] | None,
    log: str,
    traces: bool,
    item: tuple[str, ...],
    format: str,
    max_wait: float | None,
    budget: float | None,
    repo: Path | None,
    offline: bool,
    agent: str | None,
    die_with_parent: bool,
) -> int:
    """Let any agent share the keys: forward its Gemini, Anthropic and OpenAI calls, each with a key leased from the pool.

    Prints the environment variables that point an agent at the gateway, with a token in place of a key; the
    token is valid while the gateway runs. Progress goes to stderr. Ctrl-C stops it and prints tokens and cost
    per item. With --listen other machines can use it, with tokens that you issue by name and that stay valid.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    from agentos.config.settings import Flags, read_settings
    from agentos.gateway.server import GatewayOptions, run_gateway

    settings = read_settings(Flags(repo=repo, budget=budget))
    if not die_with_parent:  # otherwise its parent has already printed this
        warn_held_back(settings, err=True)
    address = _address(listen, tls_cert, tls_key, port, item)
    items = tuple(dict.fromkeys(item)) or (() if address else ("agent",))
    if len(items) > 1 and format == "env":
        raise click.UsageError(
            f"{len(items)} items would set the same variables, so only the last would count: add --format json, "
            "or start one gateway per item"
        )
    options = GatewayOptions(
        settings,
        max_wait or (SHARED_MAX_WAIT if address else MAX_WAIT),
        port or 0,
        offline,
        ends_with_stdin=die_with_parent,
        emit_events=format == "events",
        listen=address,
        metrics=metrics,
        log_json=log == "json",
        traces=require_traces(traces),
    )
    try:
        return run_gateway(
            options, lambda ready: click.echo(_variables_text(ready, items, format, agent), nl=False)
        )
    except OSError as error:
        where, flag = (
            (f"{address.host}:{address.port}", "--listen") if address else (f"port {port}", "--port")
        )
        raise click.UsageError(
            f"cannot listen on {where}: {error.strerror or error}; choose another with {flag}"
        ) from error


def _address(
    listen: tuple[str, int] | None,
    certificate: Path | None,
    key: Path | None,
    port: int | None,
    items: tuple[str, ...],
) -> "SharedAddress | None":
    from agentos.gateway.server import SharedAddress

    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both")
    if listen is None:
        if certificate:
            raise click.UsageError("--tls-cert and --tls-key need an address: add --listen HOST:PORT")
        return None
    if port is not None:
        raise click.UsageError("--listen already names a port: drop --port")
    if items:
        raise click.UsageError(
            "--listen takes tokens that last: drop --item, and type agentos gateway token NAME"
        )
    return SharedAddress(*listen, certificate, key)


def _variables_text(ready: "Ready", items: tuple[str, ...], format: str, agent: str | None) -> str:
    from agentos.config.settings import environment
    from agentos.exec.agents import AGENTS, shell_function
    from agentos.gateway.tokens import client_variables, shell_exports

    if format == "events":
        return json.dumps({"url": ready.url, "providers": ready.providers}) + "\n"
    variables = {
        item: client_variables(ready.url, ready.providers, ready.signer.token(item), environment())
        | _agent_variables(agent, ready.url)
        for item in items
    }
    if format == "json":
        flags = [flag.replace("{gateway}", ready.url) for flag in AGENTS[agent].connection] if agent else None
        found = {"url": ready.url, "items": variables}
        return json.dumps(found if flags is None else found | {"flags": flags}) + "\n"
    function = shell_function(AGENTS[agent], ready.url) if agent else ""
    return shell_exports(variables[items[0]]) + function if items else ""


def _agent_variables(agent: str | None, url: str) -> dict[str, str]:
    """What an agent needs besides the address and the token."""
    from agentos.config.settings import home_folder, user_home
    from agentos.exec.agents import AGENTS, prepare_agent
    from agentos.storage.home import Home

    if agent is None:
        return {}
    return prepare_agent(agent, Home(home_folder()).agents, user_home()) | AGENTS[agent].environment(url)


command = click.Group(
    "gateway",
    invoke_without_command=True,
    commands=TOKEN_COMMANDS,
    callback=_run,
    help=_run.__doc__,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            help="Port to listen on at 127.0.0.1; 0, the default, picks a free one.",
        ),
        click.Option(
            ["--listen"],
            type=HostPort(),
            help="Address for other machines, which use tokens from `agentos gateway token`. Beyond this machine it needs "
            "--tls-cert and --tls-key.",
        ),
        click.Option(
            ["--tls-cert"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="PEM file with the certificate chain; a renewed one is used without a restart.",
        ),
        click.Option(
            ["--tls-key"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="PEM file with the certificate's private key.",
        ),
        click.Option(
            ["--metrics"],
            type=HostPort(),
            help="Address for Prometheus, at /metrics, without TLS; numbers only. Also /healthz and /readyz.",
        ),
        log_option(),
        traces_option(),
        click.Option(
            ["--item"],
            multiple=True,
            metavar="NAME",
            help="Name to issue a token for and count calls by; repeatable with --format json (agent).",
        ),
        click.Option(
            ["--format"],
            type=click.Choice(["env", "json", "events"]),
            default="env",
            help="Output: lines for a shell, JSON, or JSON followed by one event per line (env).",
        ),
        click.Option(
            ["--max-wait"],
            type=Duration(),
            help="How long a call may wait for a key before it gets a 429 (5m; 1m with --listen).",
        ),
        click.Option(
            ["--budget"],
            type=Dollars(),
            metavar="USD",
            help="Refuse calls that would exceed this cost.",
        ),
        click.Option(
            ["--repo"],
            type=click.Path(path_type=Path),
            help="Project whose agentos.toml sets prices and a budget (default: the current folder or a parent).",
        ),
        click.Option(
            ["--offline"], is_flag=True, help="Forward to the built-in model server: no key, no network."
        ),
        click.Option(
            ["--agent"],
            type=click.Choice(AGENT_NAMES),
            help="Print what this coding agent needs, too.",
        ),
        click.Option(
            ["--die-with-parent"],
            is_flag=True,
            help="Exit when stdin closes. The first line of stdin must be JSON with the keys and the token seed.",
        ),
    ],
)
