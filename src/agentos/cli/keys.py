"""`agentos keys`: shows the state of the API keys, and adds, checks, enables and disables them."""

import sys
import time
from typing import TYPE_CHECKING

import click

from agentos.cli.param_types import Duration

if TYPE_CHECKING:
    from agentos.core.quota.key_status import KeyStatus


def _list() -> int:
    from agentos.config.settings import usable_home
    from agentos.diagnostics.key_admin import view_keys
    from agentos.storage.home import Home
    from agentos.storage.peer_log_views import other_version_warning

    if warning := other_version_warning(Home(usable_home()).quota):
        click.echo(warning, err=True)
    rows = view_keys()
    if not rows:
        click.echo("No keys. Set GEMINI_API_KEY_1 or run: agentos keys add")
        return 0
    width = max(len(row.credential.name) for row in rows)
    for row in rows:
        states = "; ".join(_status_text(status) for status in row.statuses)
        parts = [f"{row.credential.name:<{width}}  {row.credential.provider:<9} {states}"]
        if row.credential.bucket:
            parts.append(f"bucket {row.credential.bucket}")
        parts += [f"{used:,.0f} of {limit:,.0f} {name}" for name, used, limit in row.used]
        if row.reason:
            parts.append(f"last refusal: {row.reason}")
        click.echo(", ".join(parts))
    return 0


def _status_text(status: "KeyStatus") -> str:
    """`exhausted for the day for gemini-2.5-flash, until 2026-11-17 08:00:00 (in 20h 58m)`."""
    from agentos.outputs.format import clock, duration

    now = time.time()
    models = f" for {', '.join(status.models)}" if status.models else ""
    seconds = status.seconds
    until = f", until {clock(now + seconds, now)} (in {duration(seconds)})" if seconds else ""
    return f"{status.state}{models}{until}"


def _add(provider: str, name: str | None) -> int:
    from agentos.config.settings import environment, home_folder
    from agentos.storage.credentials.editor import append_credential
    from agentos.storage.credentials.reader import CredentialSource
    from agentos.storage.home import Home

    key = click.prompt("Key", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline()
    home = Home(home_folder()).open()
    append_credential(CredentialSource(home.credentials, environment()), provider, key.strip(), name)
    click.echo(
        f"Saved in {home.credentials}. Runs in progress pick it up automatically. List keys: agentos keys"
    )
    return 0


def _check(names: tuple[str, ...]) -> int:
    from agentos.diagnostics.key_admin import check_keys

    findings = check_keys(names)
    for name, problem in findings.items():
        click.echo(f"{name}: {problem or 'works'}")
    return 4 if all(findings.values()) else 0


def _rest(name: str, seconds: float) -> int:
    from agentos.diagnostics.key_admin import cool_down_key
    from agentos.outputs.format import duration

    cool_down_key(name, seconds)
    click.echo(f"No run on this machine uses {name} for {duration(seconds)}. List keys: agentos keys")
    return 0


def _switch_command(enabled: str) -> click.Command:
    verb = {"true": "enable", "false": "disable"}[enabled]

    def run(name: str) -> int:
        from agentos.diagnostics.key_admin import set_key_enabled

        set_key_enabled(name, enabled)
        click.echo(f"{name} is {verb}d. Runs in progress pick it up automatically.")
        return 0

    return click.Command(
        verb,
        help=f"{verb.capitalize()} a key of credentials.toml; runs in progress pick it up automatically.",
        params=[click.Argument(["name"])],
        callback=run,
        epilog=f"\b\nExample:\n  agentos keys {verb} key-2",
    )


@click.pass_context
def _default(ctx: click.Context) -> int:
    return _list() if ctx.invoked_subcommand is None else 0


command = click.Group(
    "keys",
    help="Manage API keys and show their state; secrets are never shown.",
    invoke_without_command=True,
    callback=_default,
    commands={
        "list": click.Command(
            "list",
            help="List every key with its state, usage against known limits and last refusal.",
            callback=_list,
            epilog="\b\nExample:\n  agentos keys list",
        ),
        "add": click.Command(
            "add",
            help="Add a key to credentials.toml; prompts without echo, or reads one line from stdin.",
            callback=_add,
            params=[
                click.Option(
                    ["--provider"],
                    type=click.Choice(["gemini", "anthropic", "openai"]),
                    default="gemini",
                    help="Provider of the key (gemini).",
                ),
                click.Option(["--name"], help="Name of the key (key-1, key-2, ...)."),
            ],
            epilog="\b\nExamples:\n  agentos keys add\n  pass show gemini | agentos keys add --name work",
        ),
        "check": click.Command(
            "check",
            help="Make one cheap call with each key to see whether it works.",
            callback=_check,
            params=[click.Argument(["names"], nargs=-1)],
            epilog="\b\nExamples:\n  agentos keys check\n  agentos keys check key-2",
        ),
        "rest": click.Command(
            "rest",
            help="Do not use a key for a while, in any run on this machine.",
            callback=_rest,
            params=[
                click.Argument(["name"]),
                click.Option(["--for", "seconds"], type=Duration(), default="10m", help="How long (10m)."),
            ],
            epilog="\b\nExample:\n  agentos keys rest key-2 --for 30m",
        ),
        "enable": _switch_command("true"),
        "disable": _switch_command("false"),
    },
)
